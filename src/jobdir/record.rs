//! Records as bytes: pretty JSON with a format number.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::RecordError;
use crate::job::RECORD_FORMAT;

/// Pretty, because people open these files. Ends with a newline.
pub fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(record)
        .expect("records hold only strings, finite numbers and maps with string keys");
    bytes.push(b'\n');
    bytes
}

/// Reads a record of this or an older format, ignoring unknown fields.
///
/// # Errors
/// When the format number is newer than [`RECORD_FORMAT`], or the bytes are not such a record.
pub fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, RecordError> {
    #[derive(serde::Deserialize)]
    struct Format {
        #[serde(default)]
        format: u64,
    }
    let broken = |cause| RecordError::Broken { key: key.to_owned(), cause };
    let format = match format_in_front(bytes) {
        Some(format) => format,
        None => serde_json::from_slice::<Format>(bytes).map_err(broken)?.format,
    };
    if format > u64::from(RECORD_FORMAT) {
        return Err(RecordError::Newer { key: key.to_owned(), found: format });
    }
    serde_json::from_slice(bytes).map_err(broken)
}

/// The format number of a record as [`encode`] writes it. `None`: parse the whole record.
fn format_in_front(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(b"{\n  \"format\": ")?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&rest[..digits])
        .ok()
        .filter(|_| matches!(rest[digits], b',' | b'\n'))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Lease;

    #[test]
    fn newer_format_is_refused_and_an_unknown_field_is_not() {
        let text = r#"{"format": 1, "instance": "i-1", "nonce": "n", "taken": "2026-01-01T00:00:00Z", "later": {"a": 1}}"#;
        assert_eq!(decode::<Lease>("k", text.as_bytes()).unwrap().instance, "i-1");
        let newer = text.replace("\"format\": 1", "\"format\": 2");
        let error = decode::<Lease>("k", newer.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "`k` has format 2, and this version knows formats up to 1");
        assert!(matches!(decode::<Lease>("k", b"{\"format\": 1"), Err(RecordError::Broken { .. })));
    }

    #[test]
    fn format_is_found_wherever_it_stands() {
        let lease = |format: &str| {
            format!(
                "{{\n  \"format\": {format},\n  \"instance\": \"i-1\", \"nonce\": \"n\", \"taken\": \"2026-01-01T00:00:00Z\"}}"
            )
        };
        let ours: Lease = decode("k", lease("1").as_bytes()).unwrap();
        assert_eq!(
            format_in_front(&encode(&ours)),
            Some(u64::from(RECORD_FORMAT)),
            "of what we write"
        );
        for newer in ["2", "17", "2.0e0", "18446744073709551615"] {
            assert!(decode::<Lease>("k", lease(newer).as_bytes()).is_err(), "{newer}");
        }
        for newer in ["2", "18446744073709551615"] {
            assert!(
                matches!(
                    decode::<Lease>("k", lease(newer).as_bytes()),
                    Err(RecordError::Newer { .. })
                ),
                "{newer}"
            );
        }
        for odd in ["1.5", "-1", "", "x", "1 2", "18446744073709551616"] {
            assert!(
                matches!(
                    decode::<Lease>("k", lease(odd).as_bytes()),
                    Err(RecordError::Broken { .. })
                ),
                "{odd}"
            );
        }
    }
}
