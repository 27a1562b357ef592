//! katabatch.
