//! Parameters of a query (WHATWG URL §5.1, as far as it is asked for here): `name=value`, joined by `&`.
//!
//! Percent-encoding is decoded; `+` is itself, because names of models may have one and clients that mean
//! a space write `%20` too.

use std::borrow::Cow;

/// Why a query has no single value for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// It has several.
    Repeated,
    /// `%` is not followed by two hexadecimal digits, or what is decoded is no UTF-8.
    Encoding,
}

/// The value of a parameter, decoded; none if it is not there. One without `=` is empty.
///
/// # Errors
/// See [`QueryError`].
pub fn parameter<'a>(query: &'a [u8], name: &str) -> Result<Option<Cow<'a, str>>, QueryError> {
    let mut found = None;
    for pair in query.split(|byte| *byte == b'&') {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let (key, value) = (halves.next(), halves.next());
        if decoded(key.unwrap_or_default())? != name {
            continue;
        }
        if found.is_some() {
            return Err(QueryError::Repeated);
        }
        found = Some(decoded(value.unwrap_or_default())?);
    }
    Ok(found)
}

fn decoded(text: &[u8]) -> Result<Cow<'_, str>, QueryError> {
    if !text.contains(&b'%') {
        let text = std::str::from_utf8(text).map_err(|_| QueryError::Encoding)?;
        return Ok(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, next) = match (first, tail) {
            (b'%', [high, low, next @ ..]) => (digit(*high)? << 4 | digit(*low)?, next),
            (b'%', _) => return Err(QueryError::Encoding),
            (plain, next) => (*plain, next),
        };
        out.push(byte);
        rest = next;
    }
    let text = String::from_utf8(out).map_err(|_| QueryError::Encoding)?;
    Ok(Cow::Owned(text))
}

fn digit(byte: u8) -> Result<u8, QueryError> {
    let value = char::from(byte).to_digit(16);
    let value = value.and_then(|value| u8::try_from(value).ok());
    value.ok_or(QueryError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::fuzzing::encoded;
    use proptest::prelude::*;

    #[test]
    fn values_decode_and_repeats_are_refused() {
        for (query, expected) in [
            ("model=m&dialect=chat", Ok(Some("m"))),
            ("dialect=chat&model=a%2Fb%20c", Ok(Some("a/b c"))),
            ("mod%65l=m", Ok(Some("m"))),
            ("model=a+b=c", Ok(Some("a+b=c"))),
            ("model", Ok(Some(""))),
            ("", Ok(None)),
            ("models=m&Model=m", Ok(None)),
            ("model=m&model=m", Err(QueryError::Repeated)),
            ("model=%c3%a9", Ok(Some("é"))),
            ("model=%c3", Err(QueryError::Encoding)),
            ("model=%4", Err(QueryError::Encoding)),
            ("model=%zz", Err(QueryError::Encoding)),
            ("x=%zz&model=m", Ok(Some("m"))),
        ] {
            let found = parameter(query.as_bytes(), "model");
            assert_eq!(
                found.map(|it| it.map(Cow::into_owned)),
                expected.map(|it| it.map(str::to_owned)),
                "{query}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(value in any::<String>(), other in any::<String>()) {
            let query = format!("x={}&model={}", encoded(&other), encoded(&value));
            let found = parameter(query.as_bytes(), "model").unwrap();
            prop_assert_eq!(found.as_deref(), Some(value.as_str()));
        }

        #[test]
        fn no_bytes_panic(query in any::<Vec<u8>>()) {
            let _found = parameter(&query, "model");
        }
    }
}
