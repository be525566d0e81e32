//! Client and worker SDK for Outlast.
