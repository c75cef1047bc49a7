//! What fuzzing began with and what it found, through the same functions, without a fuzzer: `fuzz/`
//! is built by hand only.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::io::Read;
use std::path::Path;

#[test]
fn kept_corpus_breaks_nothing() {
    for (name, target) in targets::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            println!("{}", file.display());
            target(&std::fs::read(&file).unwrap());
        }
        // And a little of what no file holds.
        for bytes in [
            &b""[..],
            b"\0",
            b"\n\n\n\n",
            b"{}",
            b"[]",
            b"null",
            b"=\xff\xfe",
            b"'\"`$\\\n'\"`$\\\n'\"`$\\\n'\"`$\\",
        ] {
            target(bytes);
        }
    }
}

/// The inputs that an hour of fuzzing each has kept (CONTRIBUTING.md).
#[test]
fn what_an_hour_of_fuzzing_has_left_breaks_nothing() {
    let packed =
        std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus.tar.zst"))
            .unwrap();
    let mut archive = tar::Archive::new(zstd::Decoder::new(packed).unwrap());
    let mut played = [0_usize; targets::ALL.len()];
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        if entry.header().entry_type().is_file() {
            let name = path.parent().and_then(Path::to_str).unwrap();
            let at = targets::ALL
                .iter()
                .position(|(of, _)| *of == name)
                .unwrap_or_else(|| panic!("{name} is no target"));
            // Of one that fails, what it was.
            println!("{}", path.display());
            targets::ALL[at].1(&bytes);
            played[at] += 1;
        }
    }
    assert!(played.iter().all(|played| *played > 100), "{played:?}");
}
