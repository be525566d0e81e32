//! The native worker session, as generated gRPC code.
