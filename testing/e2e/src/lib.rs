//! Real binary, real signals, real kills; and the Open Job Spec conformance runner.
#![expect(clippy::expect_used, reason = "test support: a broken surrounding must stop the test")]
pub mod conformance;
