//! Every bound of this crate, with its reason.

/// Longest `pack.yaml` or action file that is read: far above any real one, low enough that
/// a wrong path cannot fill the memory.
pub const DEFINITION_BYTES_MAX: u64 = 1024 * 1024;

/// Longest `NAME=value` in an environment, its final zero byte included: Linux
/// `MAX_ARG_STRLEN`. A longer one makes the start of the program fail.
pub const VARIABLE_BYTES_MAX: usize = 128 * 1024;

/// Most files of one pack that its digest covers: far above any real pack, low enough that a
/// wrong path does not read a whole disk.
pub const DIGEST_FILES_MAX: usize = 20_000;

/// Longest content of one file that the digest covers; of a longer one its length counts.
pub const DIGEST_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How many violations one check names: enough to correct a request, few enough to read.
pub const VIOLATIONS_MAX: usize = 20;

/// Most modules that one action has imported ahead: more than any real one names.
pub const PRELOAD_MAX: usize = 64;

/// How deep parameters and schemas are followed; deeper parts keep no defaults and are
/// masked whole. Requests are no deeper than this.
pub const DEPTH_MAX: usize = 64;
