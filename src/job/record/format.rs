//! The format number of the records in the job directory.

/// The format number of every record that this version writes.
///
/// Raised when an old reader would misunderstand a new record, not when a field is added: readers ignore unknown fields.
pub const RECORD_FORMAT: u32 = 1;
