//! Faces: the protocols in which a stream is served. A new one is a file here and a row in the list.

pub(crate) mod cap;

pub(crate) use cap::Cap;
