//! Real binary, real signals, real kills; and the Open Job Spec conformance runner.
