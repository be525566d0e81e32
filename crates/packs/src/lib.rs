//! Packs and actions: reading, checking and rendering them.
