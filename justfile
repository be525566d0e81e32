# Chores of the project; `just` alone lists them. CI runs `just ci`.

# nextest runs the tests of all crates in parallel.
nextest := "cargo nextest run --locked --cargo-quiet"
# Tests that need PostgreSQL share a cluster that this starts and removes.
cluster := "cargo run --quiet --locked -p outlast-cluster --"

[private]
default:
    @just --list --unsorted

# Format, lints and all tests but those of processes and PostgreSQL: the loop while you work.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
    {{ nextest }} --workspace -E 'not (package(outlast-e2e) or package(outlast-store-postgres))'

# All tests, on both stores.
test *ARGUMENTS:
    cargo build --workspace --locked
    {{ cluster }} {{ nextest }} --workspace {{ ARGUMENTS }}

# End-to-end tests: the real binary under real signals. `just e2e drain` runs those named so.
e2e *ARGUMENTS:
    cargo build --workspace --locked
    {{ cluster }} {{ nextest }} --workspace -E 'package(outlast-e2e)' {{ ARGUMENTS }}

# The same with every server on PostgreSQL.
e2e-postgres *ARGUMENTS:
    cargo build --workspace --locked
    OUTLAST_TEST_STORE=postgres {{ cluster }} {{ nextest }} --workspace -E 'package(outlast-e2e)' {{ ARGUMENTS }}

# Everything that must hold, as CI runs it.
ci:
    bash .ci/run

# Pictures of every page of the dashboard, in both themes and two widths, into a folder.
web-shots FOLDER="target/web-shots":
    cargo build --workspace --locked
    OUTLAST_PICTURES={{ absolute_path(FOLDER) }} {{ nextest }} --workspace --run-ignored only -E 'test(pictures_of_every_page)'

# What takes too long for CI; writes docs/inside/nightly.md.
nightly:
    bash .ci/nightly

# Regenerate the pages that tests compare with the code: references and the state machine.
docs:
    UPDATE_DOCS=1 {{ nextest }} -p outlast-cli -p outlast-core -p outlast-server

# Licences, bans and advisories of every dependency (cargo install cargo-deny).
deny:
    cargo deny --locked check

# Spelling (cargo install typos-cli).
typos:
    typos

# The crates that are published, as crates.io would get them.
package:
    cargo package --locked --allow-dirty -p outlast-core -p outlast-proto -p outlast-wire -p outlast-sdk

# The shipped binary: small, fast, slow to build.
dist:
    cargo build --profile dist --locked
    @ls -l target/dist/outlast
