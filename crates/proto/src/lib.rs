//! The native worker session, as generated gRPC code. Written by `cargo xtask codegen`.

/// Version 1 of the session protocol.
#[expect(clippy::all, reason = "generated code")]
pub mod v1 {
    include!("generated/outlast.session.v1.rs");
}
