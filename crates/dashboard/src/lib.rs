//! The pages of the dashboard: values in, HTML out.
//!
//! ```text
//! server: values ─▶ a page (templates/*.html) ─▶ HTML ─▶ browser
//!                                    └▶ live: the texts of it that change ─▶ JSON ─▶ script
//! ```
//!
//! Nothing here reads a clock, a store or a request. Templates escape whatever they are given; what is
//! HTML by itself is a type of [`atoms`]. Every URL is relative, so a page works below any path.
//!
//! - [`frame`]: what stands around every page; [`atoms`]: times, states, names
//! - [`pages`]: the pages; [`live`]: what of a page changes while it is looked at
//! - [`assets`]: the style sheet and the script

pub mod assets;
pub mod atoms;
pub mod frame;
pub mod live;
pub mod pages;

pub use frame::{Flash, Frame, May, Place, Reader};
