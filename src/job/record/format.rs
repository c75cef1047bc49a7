//! The format number of the records in the job directory.

/// The format number of every record that this version writes.
///
/// Raise it when an old reader would misunderstand a new record. A new field needs no raise:
/// readers ignore unknown fields.
pub const RECORD_FORMAT: u32 = 1;
