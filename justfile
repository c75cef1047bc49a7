# `just` lists these. `just check` is what the gate runs; do it before each commit.

[private]
default:
    @just --list --unsorted

# Everything that the gate does, on this machine as it is.
check:
    .ci/run --no-install

# All tests, or those whose name holds the words: `just test idle`.
test *words:
    cargo test {{ words }}

# Formatting and lints, in seconds once built.
lint:
    cargo fmt
    cargo clippy --all-targets --features live-aws -- -D warnings
    cargo clippy --no-default-features --features agent -- -D warnings
    cargo test --test architecture

# Plays so many seeds of the false world, six hours each: `just soak 1000`, `just soak --seed 7`. Prints machine-days and violations.
soak *args:
    cargo run --profile soak --no-default-features --features lamp --example soak -- {{ args }}

# Plants 30 bugs in the false world, one at a time: each must break its law within 500 seeds.
mutants-sim:
    cargo run --profile soak --no-default-features --features lamp --example soak -- --mutants

# A kernel, a disk and a mount that hang, on emulated machines with kernels of their own: root, and twenty minutes of two processors.
# The first time makes what they boot, from Debian's packages.
vm-faults:
    .ci/vm-image
    LAMP_TEST_VM="${CARGO_TARGET_DIR:-$PWD/target}/vm" cargo test --test e2e ec2::kernels:: -- --nocapture --test-threads=1

# Holds the agent against a real NVIDIA driver: on a machine with a GPU, PyTorch and scikit-learn; seven minutes, and what it builds (tests/README.md).
gpu-check *names:
    cargo build --release --bins --example figures
    python3 tests/gpu/check.py {{ names }}

# Runs stock scripts of real frameworks under lamp, interrupted with and without a notice: `just frameworks --only hf_trainer`. The
# first time installs 7 GB into target/frameworks; all of them take half an hour on two processors. It writes docs/frameworks.md anew.
frameworks *args:
    cargo build --bins
    python3 tests/frameworks/check.py --write docs/frameworks.md {{ args }}

# Writes config/schema anew, from the types that read the files.
schemas:
    cargo build --bin lamp
    for name in job config; do target/debug/lamp schema $name > config/schema/$name.json; done

# The size of the program that goes to the GPU machine, stripped, and what it is made of.
agent-size:
    cargo build --release --no-default-features --features agent --bin lamp-agent
    @stat --format '%n: %s bytes' target/release/lamp-agent
    @cargo tree --no-default-features --features agent --edges normal,no-proc-macro --prefix none | sort -u | wc -l | xargs printf '%s crates\n'

# The agent for machines with an old C library, x86_64 or arm64, in target/portable. `lamp` finds it there, or beside itself.
agent-portable *archs:
    .ci/agent-portable {{ archs }}

# What things cost: prints figures, enforces none.
bench *args:
    cargo bench --bench '*' {{ args }}

# Licences, advisories and sources of the dependencies (needs cargo-deny and cargo-audit).
deny:
    cargo deny check
    cargo audit
    cargo audit --file fuzz/Cargo.lock

# The pages of docs/ as a book, in target/book (needs mdbook).
book:
    mdbook build

# What a release is made of, in target/release-<version>: archive, lists of what is in it, sums (CONTRIBUTING.md).
release *args:
    .ci/release {{ args }}

# Fuzzes one target for so many seconds: spec, records, imds, tags, user_data, series or words. Needs nightly and cargo-fuzz.
# It begins from the seeds, and from what fuzzing has found before.
fuzz name seconds='60':
    mkdir -p fuzz/found/{{ name }}
    zstd -dc fuzz/corpus.tar.zst | tar -x -C fuzz/found {{ name }}
    cargo +nightly fuzz run {{ name }} fuzz/found/{{ name }} fuzz/corpus/{{ name }} --sanitizer none -- -max_total_time={{ seconds }} -max_len=16384

# Packs what fuzzing has found into fuzz/corpus.tar.zst, beside what it has already, less all that adds nothing.
fuzz-keep:
    rm -rf fuzz/found/.least
    mkdir -p fuzz/found
    zstd -dc fuzz/corpus.tar.zst | tar -x -C fuzz/found
    for name in imds records series spec tags user_data words; do mkdir -p fuzz/found/.least/$name fuzz/found/$name && cargo +nightly fuzz run $name --sanitizer none -- -merge=1 -max_len=16384 $PWD/fuzz/found/.least/$name $PWD/fuzz/found/$name $PWD/fuzz/corpus/$name || exit 1; done
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C fuzz/found/.least -c imds records series spec tags user_data words | zstd -19 -q -f -o fuzz/corpus.tar.zst

# The Python examples' own tests.
examples:
    cd examples/digits && sh ./setup.sh && .venv/bin/python -m unittest -v
