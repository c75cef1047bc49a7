//! What fuzzing began with and what it found, through the same functions, without a fuzzer: `fuzz/` is built by hand only.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::path::Path;

#[test]
fn the_kept_corpus_breaks_nothing() {
    for (name, target) in targets::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{name}: {error}")).map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            println!("{}", file.display());
            target(&std::fs::read(&file).unwrap());
        }
        // And a little of what no file holds.
        for bytes in [&b""[..], b"\0", b"\n\n\n\n", b"{}", b"[]", b"null", b"=\xff\xfe", b"'\"`$\\\n'\"`$\\\n'\"`$\\\n'\"`$\\"] {
            target(bytes);
        }
    }
}
