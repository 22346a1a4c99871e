use proptest::prelude::*;

use super::*;

/// Data, bytes used and whether the body ended.
fn whole(text: &[u8]) -> Result<(Vec<u8>, usize, bool), (u64, ChunkReason)> {
    let mut buf = text.to_vec();
    let decoded = Decoder::new().decode(&mut buf);
    let decoded = decoded.map_err(|error| (error.at, error.reason))?;
    assert_eq!(buf[decoded.consumed..], text[decoded.consumed..]);
    buf.truncate(decoded.produced);
    Ok((buf, decoded.consumed, decoded.done))
}

#[test]
fn good_bodies() {
    let long_extension = format!(
        "1;a=\"{}\"\r\nx\r\n0\r\n\r\n",
        "y".repeat(EXTENSION_BYTES_MAX - 5)
    );
    let zeros = format!("{}1\r\nx\r\n0\r\n\r\n", "0".repeat(SIZE_ZEROS_MAX.into()));
    let cases: &[(&[u8], &[u8])] = &[
        (b"0\r\n\r\n", b""),
        (b"000\r\n\r\n", b""),
        (b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (
            b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            b"01234567890123456789",
        ),
        (b"00003\r\n\r\n\r\r\n0\r\n\r\n", b"\r\n\r"),
        (zeros.as_bytes(), b"x"),
        (b"1;a\r\nx\r\n0;b\r\n\r\n", b"x"),
        (b"1;a=b;c=\"d\\\";\te\"\r\nx\r\n0\r\n\r\n", b"x"),
        (b"1 ;\ta = b ; c = \"\" ;d\r\nx\r\n0\r\n\r\n", b"x"),
        (b"1;a ;b\r\nx\r\n0\r\n\r\n", b"x"),
        (long_extension.as_bytes(), b"x"),
        (b"1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n", b"x"),
    ];
    for (text, data) in cases {
        let expected = Ok((data.to_vec(), text.len(), true));
        assert_eq!(whole(text), expected, "{}", text.escape_ascii());
    }
}

#[test]
fn faults_have_a_place_and_a_reason() {
    use ChunkReason as Why;
    let long_extension = format!("1;a=\"{}\"\r\n", "y".repeat(EXTENSION_BYTES_MAX - 4));
    let zeros = "0".repeat(usize::from(SIZE_ZEROS_MAX) + 1);
    let cases: &[(&[u8], u64, Why)] = &[
        (b"\r\n", 0, Why::Size),
        (b"\n", 0, Why::Size),
        (b" 3\r\n", 0, Why::Size),
        (b"-3\r\n", 0, Why::Size),
        (b"0x3\r\n", 1, Why::Size),
        (b"3_9\r\n", 1, Why::Size),
        (b"3,\r\n", 1, Why::Size),
        (b"3\0\r\n", 1, Why::Size),
        (b";a\r\n", 0, Why::Size),
        (b"3 \r\n", 2, Why::Extension),
        (b"3\n", 1, Why::LineEnd),
        (b"3\rx", 2, Why::LineEnd),
        (b"3\r\r\n", 2, Why::LineEnd),
        (b"8000000000000000\r\n", 15, Why::SizeTooLarge),
        (b"10000000000000039\r\n", 16, Why::SizeTooLarge),
        (zeros.as_bytes(), 16, Why::SizeTooLong),
        (b"3;\r\n", 2, Why::Extension),
        (b"3;;\r\n", 2, Why::Extension),
        (b"3;a=\r\n", 4, Why::Extension),
        (b"3;a \r\n", 4, Why::Extension),
        (b"3;a=b \r\n", 6, Why::Extension),
        (b"3;a=b c\r\n", 6, Why::Extension),
        (b"3;a=\"b\r\n", 6, Why::Extension),
        (b"3;a=\"b\\\r\n", 7, Why::Extension),
        (b"3;a=\"b\"c\r\n", 7, Why::Extension),
        (b"3;a=\"b\n", 6, Why::LineEnd),
        (b"3;a\n", 3, Why::LineEnd),
        (b"3;a\rb", 4, Why::LineEnd),
        (long_extension.as_bytes(), 16385, Why::ExtensionsTooLong),
        (b"3\r\nabcd", 6, Why::DataEnd),
        (b"3\r\nabc\n", 6, Why::DataEnd),
        (b"3\r\nabc\rx", 7, Why::DataEnd),
        (b"0\r\nA : b\r\n", 4, Why::TrailerName),
        (b"0\r\n A: b\r\n", 3, Why::TrailerName),
        (b"0\r\n: b\r\n", 3, Why::TrailerName),
        (b"0\r\nA\r\n", 4, Why::TrailerName),
        (b"0\r\nA: \0\r\n", 6, Why::TrailerValue),
        (b"0\r\nA: b\n", 7, Why::LineEnd),
        (b"0\r\nA: b\rc", 8, Why::LineEnd),
        (b"0\r\n\n", 3, Why::LineEnd),
        (b"0\r\n\rx", 4, Why::LineEnd),
    ];
    for (text, at, reason) in cases {
        assert_eq!(whole(text), Err((*at, *reason)), "{}", text.escape_ascii());
    }
}

#[test]
fn the_largest_size_is_read() {
    let (data, consumed, done) = whole(b"7fffffffffffffff\r\nx").unwrap();
    assert_eq!((data.as_slice(), consumed, done), (&b"x"[..], 19, false));
}

#[test]
fn extensions_are_limited_over_the_whole_body() {
    let mut decoder = Decoder::new();
    let mut bytes = 0;
    let error = loop {
        match decoder.decode(&mut b"1;abcdefg\r\nx\r\n".to_vec()) {
            Ok(_) => bytes += 8,
            Err(error) => break error,
        }
    };
    assert_eq!(error.reason, ChunkReason::ExtensionsTooLong);
    assert_eq!(bytes, EXTENSION_BYTES_MAX);
}

#[test]
fn trailers_are_limited_in_bytes_and_lines() {
    let with = |section: String| whole(format!("0\r\n{section}\r\n").as_bytes());
    let line = |bytes: usize| format!("A:{}\r\n", "b".repeat(bytes - 4));
    assert!(with(line(TRAILER_BYTES_MAX)).is_ok());
    let too_long = with(line(TRAILER_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(too_long.1, ChunkReason::TrailersTooLong);
    assert!(with("A:\r\n".repeat(TRAILER_FIELDS_MAX)).is_ok());
    let too_many = with("A:\r\n".repeat(TRAILER_FIELDS_MAX + 1)).unwrap_err();
    assert_eq!(too_many.1, ChunkReason::TooManyTrailers);
}

#[test]
fn trailers_are_kept_when_asked_for() {
    let text = b"1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\nnext";
    let mut decoder = Decoder::keeping_trailers();
    let decoded = decoder.decode(&mut text.to_vec()).unwrap();
    assert!(decoded.done);
    assert_eq!(&text[decoded.consumed..], b"next");
    assert_eq!(decoder.trailers(), b"A: b\r\nC: d\r\n");
    let mut decoder = Decoder::new();
    decoder.decode(&mut text.to_vec()).unwrap();
    assert_eq!(decoder.trailers(), b"");
}

#[test]
fn nothing_is_read_after_the_end() {
    let mut decoder = Decoder::new();
    assert!(decoder.decode(&mut b"0\r\n\r\n".to_vec()).unwrap().done);
    let mut next = b"GET / HTTP/1.1\r\n".to_vec();
    let after = decoder.decode(&mut next).unwrap();
    assert_eq!((after.consumed, after.produced, after.done), (0, 0, true));
    assert_eq!(next, b"GET / HTTP/1.1\r\n");
}

#[test]
fn every_prefix_of_a_good_body_is_unfinished() {
    let text = b"3 ;a=\"b\"\r\nabc\r\n00\r\nA: b\r\n\r\n";
    for cut in 0..text.len() {
        let (_, consumed, done) = whole(&text[..cut]).unwrap();
        assert_eq!((consumed, done), (cut, false));
    }
}

#[test]
fn chunk_headers() {
    for (bytes, text) in [
        (0, &b"0\r\n"[..]),
        (1, b"1\r\n"),
        (15, b"f\r\n"),
        (16, b"10\r\n"),
        (16 * 1024, b"4000\r\n"),
        (u64::MAX, b"ffffffffffffffff\r\n"),
    ] {
        assert_eq!(ChunkHeader::new(bytes).as_bytes(), text);
    }
}

fn encode(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    for chunk in chunks {
        text.extend_from_slice(ChunkHeader::new(chunk.len() as u64).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(CHUNK_END);
    }
    text.extend_from_slice(LAST_CHUNK);
    text
}

proptest! {
    #[test]
    fn encoded_data_is_read_back_at_any_cut(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..8),
        pieces in prop::collection::vec(1..20usize, 1..10),
    ) {
        let text = encode(&chunks);
        let mut decoder = Decoder::new();
        let (mut data, mut rest) = (Vec::new(), text.as_slice());
        for &piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            let mut buf = now.to_vec();
            let decoded = decoder.decode(&mut buf).unwrap();
            prop_assert_eq!(decoded.consumed, now.len());
            prop_assert_eq!(decoded.done, later.is_empty());
            data.extend_from_slice(&buf[..decoded.produced]);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(data, chunks.concat());
    }
}
