//! Five hundred archives by somebody who means harm, each from its seed: nothing is written outside
//! of the folder, nothing above the bounds, and who was refused is named.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lamplighter::adapters::workdir::unpack::{ArchiveError, ArchiveLimits, Unpacked, unpack};

const ARCHIVES: u64 = 500;

const LIMITS: ArchiveLimits = ArchiveLimits { bytes_max: 64 * 1024, entries_max: 40 };

/// The same numbers for the same seed; xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % bound
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// One entry as its bytes will say it, whether that is true or not.
struct Entry {
    name: Vec<u8>,
    kind: u8,
    link: Vec<u8>,
    mode: u32,
    declared: u64,
    data: Vec<u8>,
}

impl Entry {
    fn new(name: impl Into<Vec<u8>>, kind: u8) -> Self {
        Entry {
            name: name.into(),
            kind,
            link: Vec::new(),
            mode: 0o644,
            declared: 0,
            data: Vec::new(),
        }
    }

    fn to(mut self, link: impl Into<Vec<u8>>) -> Self {
        self.link = link.into();
        self
    }

    fn holding(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self.declared = self.data.len() as u64;
        self
    }

    /// A header of 512 bytes, and the data in whole blocks.
    fn bytes(&self) -> Vec<u8> {
        let mut block = vec![0_u8; 512];
        let mut put = |at: usize, room: usize, bytes: &[u8]| {
            let bytes = &bytes[..bytes.len().min(room)];
            block[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, 100, &self.name);
        put(100, 8, format!("{:07o}\0", self.mode).as_bytes());
        put(108, 8, b"0000000\0");
        put(116, 8, b"0000000\0");
        if self.declared < 1 << 33 {
            put(124, 12, format!("{:011o}\0", self.declared).as_bytes());
        } else {
            // As GNU tar writes what does not fit.
            let mut wide = [0_u8; 12];
            wide[4..].copy_from_slice(&self.declared.to_be_bytes());
            wide[0] = 0x80;
            put(124, 12, &wide);
        }
        put(136, 12, b"00000000000\0");
        put(148, 8, b"        ");
        put(156, 1, &[self.kind]);
        put(157, 100, &self.link);
        put(257, 8, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block.extend_from_slice(&self.data);
        block.resize(block.len().next_multiple_of(512), 0);
        block
    }
}

fn pax(pairs: &[(&str, &[u8])]) -> Entry {
    let mut data = Vec::new();
    for (key, value) in pairs {
        let bare = key.len() + value.len() + 3;
        let mut length = bare + bare.to_string().len();
        length = bare + length.to_string().len();
        data.extend_from_slice(format!("{length} {key}=").as_bytes());
        data.extend_from_slice(value);
        data.push(b'\n');
    }
    Entry::new("PaxHeaders/x", b'x').holding(data)
}

/// A path that leads out, or one that only looks odd; `out` is a folder beside the one that is
/// unpacked into.
fn path(dice: &mut Dice, out: &Path) -> Vec<u8> {
    let absolute = out.join("new").into_os_string().into_vec();
    let plain: &[&[u8]] = &[
        b"a",
        b"b",
        b"a/b",
        b"a/b/c",
        b"l",
        b"l/x",
        b"l/l",
        b"a/l/x",
        b"./a",
        b"a//b",
        b".",
        b"",
        b"a/",
        b"caf\xe9",
        b"\xff\xfe/x",
    ];
    let hostile: &[&[u8]] = &[
        b"..",
        b"../new",
        b"../outside/new",
        b"a/../../new",
        b"./../new",
        b"a/b/../../../new",
        b"l/../../new",
        b"../in/../new",
        b"/new-lamp-test",
        &absolute,
    ];
    if dice.below(3) == 0 { dice.pick(hostile).to_vec() } else { dice.pick(plain).to_vec() }
}

fn target(dice: &mut Dice, out: &Path) -> Vec<u8> {
    let absolute = out.to_owned().into_os_string().into_vec();
    let all: &[&[u8]] = &[
        b"a",
        b"b",
        b"../a",
        b"..",
        b"../..",
        b"../../..",
        b".",
        b"",
        b"a/..",
        b"a/b",
        b"../../top",
        b"../outside",
        b"../outside/secret",
        b"/",
        &absolute,
    ];
    dice.pick(all).to_vec()
}

/// What an attacker may put next; some need several entries.
fn harm(dice: &mut Dice, out: &Path) -> Vec<Entry> {
    let file = |name: Vec<u8>| Entry::new(name, b'0').holding("harm");
    match dice.below(14) {
        0 | 1 => vec![file(path(dice, out))],
        2 => vec![Entry::new(path(dice, out), b'5')],
        3 => vec![Entry::new(path(dice, out), b'2').to(target(dice, out))],
        4 => vec![Entry::new(path(dice, out), b'1').to(target(dice, out))],
        // A link, and then what would go through it.
        5 => vec![
            Entry::new("l", b'2').to(target(dice, out)),
            file(b"l/x".to_vec()),
            Entry::new("l/d", b'5'),
        ],
        // A link that is shallower than it looks, and a link below it.
        6 => vec![
            Entry::new("top", b'5'),
            Entry::new("a/b/c", b'2').to("../../top"),
            Entry::new("a/b/c/x", b'2').to("../../../outside"),
            Entry::new("a/b/c/x/new", b'2').to("secret"),
        ],
        7 => vec![Entry::new(path(dice, out), dice.pick(b"3467SVDMNgABC\0"))],
        8 => {
            let name = path(dice, out);
            vec![
                file(name.clone()),
                Entry::new(name.clone(), dice.pick(b"0125")).to("a"),
                file(name),
            ]
        }
        // Long names: GNU's and pax's.
        9 => {
            let name = [path(dice, out), b"/n".repeat(dice.pick(&[60, 3000]))].concat();
            vec![
                Entry::new("././@LongLink", dice.pick(b"LK")).holding(name),
                Entry::new("short", dice.pick(b"02")).to("a"),
            ]
        }
        10 => {
            let (name, link) = (path(dice, out), target(dice, out));
            vec![
                pax(&[("path", &name), ("linkpath", &link)]),
                Entry::new("short", dice.pick(b"0125")).to("a"),
            ]
        }
        // More than it says: by its header, by pax, as a sparse file.
        11 => vec![match dice.below(3) {
            0 => Entry {
                declared: dice.pick(&[1 << 20, 1 << 40, u64::MAX >> 1, u64::MAX]),
                ..file(b"big".to_vec())
            },
            1 => Entry { kind: b'S', declared: 1 << 40, ..file(b"sparse".to_vec()) },
            _ => Entry::new("zeros", b'0').holding(vec![0; 1 << 20]),
        }],
        12 => vec![
            pax(&[("size", b"1099511627776")]),
            file(b"grown".to_vec()),
            pax(&[("size", b"0")]),
            file(b"shrunk".to_vec()),
        ],
        _ => vec![Entry {
            mode: dice.pick(&[0o4777, 0o2777, 0o1777, 0o7777, 0o0, 0o1_000_000]),
            ..file(path(dice, out))
        }],
    }
}

/// Everything below a folder but one part: what it is, who may read it, and what it says.
fn everything(root: &Path, but: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("readable") {
            let path = entry.expect("readable").path();
            let about = fs::symlink_metadata(&path).expect("it is there");
            if path == but {
                continue;
            }
            if about.is_dir() {
                open.push(path.clone());
            }
            let said =
                if about.is_file() { fs::read(&path).expect("readable") } else { Vec::new() };
            found.insert(path, (about.mode(), about.nlink(), said));
        }
    }
    found
}

/// What was unpacked keeps to its place and its bounds, whether it was accepted or not.
fn check_inside(into: &Path, what: &str) {
    let root = into.canonicalize().expect("it is there");
    let found = everything(into, Path::new(""));
    let bytes: usize = found.values().map(|(_, _, said)| said.len()).sum();
    assert!(bytes as u64 <= LIMITS.bytes_max, "{what}: {bytes} bytes");
    for (path, (mode, links, _)) in &found {
        let kind = mode & 0o170_000;
        assert!(
            [0o100_000, 0o040_000, 0o120_000].contains(&kind),
            "{what}: {} is of the kind {kind:o}",
            path.display()
        );
        assert!(
            kind != 0o100_000 || (mode & 0o7000, *links) == (0, 1),
            "{what}: {} has {mode:o} and {links} names",
            path.display()
        );
        if kind == 0o120_000 {
            // Where it leads, as far as that exists.
            let target =
                path.parent().expect("in a folder").join(fs::read_link(path).expect("a link"));
            let there =
                target.ancestors().find_map(|part| part.canonicalize().ok()).expect("`/` exists");
            assert!(
                there.starts_with(&root),
                "{what}: {} leads to {}",
                path.display(),
                there.display()
            );
        }
    }
}

fn compressed(entries: &[Entry], dice: &mut Dice) -> Vec<u8> {
    let mut plain: Vec<u8> = entries.iter().flat_map(Entry::bytes).collect();
    match dice.below(12) {
        0 => plain.truncate(dice.below(plain.len().max(1))),
        1 => {
            let at = dice.below(plain.len().max(1));
            plain[at] ^= 1 << dice.below(8);
        }
        _ => plain.resize(plain.len() + 1024, 0),
    }
    zstd::encode_all(&plain[..], 1).expect("it packs")
}

fn unpack_bytes(bytes: &[u8], place: &Path) -> Result<Unpacked, ArchiveError> {
    let packed = place.join("code.tar.zst");
    fs::write(&packed, bytes).expect("writable");
    unpack(&packed, &place.join("in"), LIMITS)
}

/// A folder with something beside it that must stay as it is.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    fs::create_dir(place.path().join("outside")).expect("writable");
    fs::write(place.path().join("outside/secret"), "nobody's business").expect("writable");
    place
}

#[test]
fn hostile_archives_write_nothing_outside_or_above_the_bounds() {
    let (mut refused, mut accepted) = (BTreeMap::<&str, u32>::new(), 0);
    for seed in 1..=ARCHIVES {
        let (mut dice, place) = (Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), place());
        let out = place.path().join("outside");
        let entries: Vec<Entry> = (0..=dice.below(4)).flat_map(|_| harm(&mut dice, &out)).collect();
        let bytes = compressed(&entries, &mut dice);
        fs::write(place.path().join("code.tar.zst"), &bytes).expect("writable");
        let into = place.path().join("in");
        let before = everything(place.path(), &into);
        let result = unpack_bytes(&bytes, place.path());
        let what = format!("seed {seed}: {result:?}");
        assert_eq!(everything(place.path(), &into), before, "{what}");
        assert!(!Path::new("/new-lamp-test").exists(), "{what}");
        check_inside(&into, &what);
        let path = match result {
            Ok(done) => {
                assert!(
                    done.bytes <= LIMITS.bytes_max && done.files <= LIMITS.entries_max,
                    "{what}"
                );
                accepted += 1;
                continue;
            }
            Err(ArchiveError::Refused { ref path, .. }) => (path, "refused"),
            Err(ArchiveError::TooMuch { ref path, .. }) => (path, "too much"),
            Err(ArchiveError::Write { ref path, .. }) => (path, "cannot be written"),
            Err(ArchiveError::Entry { ref path, .. } | ArchiveError::After { ref path, .. }) => {
                (path, "cannot be read")
            }
            Err(ArchiveError::Read(_)) => panic!("it does not say where: {what}"),
        };
        // A name that was damaged on its way is told as it arrived.
        let told = result.as_ref().expect_err("it was one").to_string();
        assert!(told.len() < 1000 && !told.contains(char::is_control), "{told}");
        let name: String = path
            .0
            .strip_prefix(&into)
            .unwrap_or(path.0)
            .to_string_lossy()
            .chars()
            .take(50)
            .collect();
        assert!(told.contains(&name), "{told}");
        *refused.entry(path.1).or_default() += 1;
    }
    let many = |word: &str| refused.get(word).copied().unwrap_or_default();
    assert!(accepted >= 20, "some have no harm in them: {accepted}");
    assert!(
        many("refused") >= 200
            && many("too much") >= 20
            && many("cannot be written") >= 20
            && many("cannot be read") >= 20,
        "{refused:?}"
    );
}

/// Each of the links is inside by its own words; the second would be made where the first leads.
#[test]
fn link_below_a_link_is_refused() {
    let place = place();
    let entries = [
        Entry::new("top", b'5'),
        Entry::new("a/b/c", b'2').to("../../top"),
        Entry::new("a/b/c/x", b'2').to("../../../outside"),
        Entry::new("a/b/c/x/new", b'2').to("secret"),
    ];
    let plain: Vec<u8> = entries.iter().flat_map(Entry::bytes).chain([0; 1024]).collect();
    let error = unpack_bytes(&zstd::encode_all(&plain[..], 1).expect("it packs"), place.path())
        .expect_err("it leads out");
    assert_eq!(error.to_string(), "the archive was refused: `a/b/c/x` is below a link");
    assert!(fs::symlink_metadata(place.path().join("outside/new")).is_err());
}

/// A name of half a gigabyte is 20 kB of archive; it must not come to be in memory.
#[test]
fn name_of_half_a_gigabyte_is_refused_before_it_is_read() {
    let place = place();
    let head = Entry { declared: 512 << 20, ..Entry::new("././@LongLink", b'L') };
    let first = Entry::new("first", b'0').holding("1").bytes();
    let zeros = zstd::encode_all(&vec![b'n'; 8 << 20][..], 1).expect("it packs");
    let mut bytes = zstd::encode_all(&[first, head.bytes()].concat()[..], 1).expect("it packs");
    (0..64).for_each(|_| bytes.extend_from_slice(&zeros));
    let error = unpack_bytes(&bytes, place.path()).expect_err("it is too long");
    let ArchiveError::After { path, source } = &error else { panic!("{error:?}") };
    assert_eq!(
        (path.as_path(), source.to_string().as_str()),
        (Path::new("first"), "it has more than 1048576 bytes beside the contents of files")
    );
}

/// A million entries that hold nothing: in one archive of a few kilobytes.
#[test]
fn million_empty_entries_end_at_the_bound() {
    let place = place();
    let folders: Vec<u8> =
        (0..10_000).flat_map(|number| Entry::new(format!("d{number}"), b'5').bytes()).collect();
    let frame = zstd::encode_all(&folders[..], 1).expect("it packs");
    let error = unpack_bytes(&frame.repeat(100), place.path()).expect_err("forty are allowed");
    assert_eq!(
        error.to_string(),
        "the archive was refused: with `d40` it holds more than 40 entries"
    );
    assert_eq!(fs::read_dir(place.path().join("in")).expect("readable").count(), 40);
}

/// The folder that is unpacked into is its owner's, and no archive opens it to others.
#[test]
fn archive_does_not_open_the_folder_to_others() {
    let place = place();
    let into = place.path().join("in");
    fs::create_dir(&into).expect("writable");
    fs::set_permissions(&into, fs::Permissions::from_mode(0o700)).expect("ours");
    let entries = [
        Entry { mode: 0o777, ..Entry::new("./", b'5') },
        Entry { mode: 0o777, ..Entry::new(OsStr::new("in").as_bytes(), b'5') },
    ];
    let plain: Vec<u8> = entries.iter().flat_map(Entry::bytes).chain([0; 1024]).collect();
    unpack_bytes(&zstd::encode_all(&plain[..], 1).expect("it packs"), place.path())
        .expect("no harm in it");
    assert_eq!(fs::metadata(&into).expect("it is there").mode() & 0o777, 0o700);
}
