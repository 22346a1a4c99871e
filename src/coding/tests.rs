use std::io::Write;

use proptest::prelude::*;

use super::fuzzing::{chosen, cuts, decode, decode_open};
use super::*;

const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Zstd, Coding::Brotli];

const MIB: usize = 1 << 20;

fn packed(coding: Coding, plain: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        }
        Coding::Deflate => {
            let mut packer =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        }
        Coding::Zstd => zstd(plain, 21),
        Coding::Brotli => brotli(plain, 22),
    }
}

/// A frame with this window and no declared length.
fn zstd(plain: &[u8], window: u32) -> Vec<u8> {
    use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};
    let mut context = CCtx::create();
    context
        .set_parameter(CParameter::WindowLog(window))
        .unwrap();
    let mut out = vec![0; zstd_safe::compress_bound(plain.len()) + 64];
    let written = {
        let mut output = OutBuffer::around(&mut out[..]);
        let mut input = InBuffer::around(plain);
        while input.pos < plain.len() {
            context.compress_stream(&mut output, &mut input).unwrap();
        }
        assert_eq!(context.end_stream(&mut output).unwrap(), 0);
        output.pos()
    };
    out.truncate(written);
    out
}

fn brotli(plain: &[u8], window: u32) -> Vec<u8> {
    let mut packer = ::brotli::CompressorWriter::new(Vec::new(), 4096, 5, window);
    packer.write_all(plain).unwrap();
    packer.into_inner()
}

/// Text that compresses to about a third.
fn prose(bytes: usize) -> Vec<u8> {
    let mut number = 1_u64;
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text.extend(format!("word{:x} ", number >> 44).bytes());
    }
    text.truncate(bytes);
    text
}

fn whole(coding: Coding, body: &[u8]) -> Result<Vec<u8>, CodingError> {
    decode(coding, body, body.len().max(1), 1 << 14, 32 << 20)
}

#[test]
fn fields_name_one_coding_or_are_unreadable() {
    let cases: [(&[&str], Codings); 13] = [
        (&[], Codings::Plain),
        (&["identity"], Codings::Plain),
        (&["", " , "], Codings::Plain),
        (&["gzip"], Codings::One(Coding::Gzip)),
        (&["X-GZip"], Codings::One(Coding::Gzip)),
        (&[" deflate "], Codings::One(Coding::Deflate)),
        (&["zstd, identity"], Codings::One(Coding::Zstd)),
        (&["identity", "br"], Codings::One(Coding::Brotli)),
        (&["gzip, gzip"], Codings::Unreadable),
        (&["gzip", "br"], Codings::Unreadable),
        (&["compress"], Codings::Unreadable),
        (&["unheard-of, gzip"], Codings::Unreadable),
        (&["gzip;q=1"], Codings::Unreadable),
    ];
    for (values, expected) in cases {
        let read = Codings::of(values.iter().map(|value| value.as_bytes()));
        assert_eq!(read, expected, "{values:?}");
    }
}

#[test]
fn every_coding_is_decoded_in_any_cut() {
    let plain = prose(5000);
    for coding in ALL {
        let body = packed(coding, &plain);
        for (step, room) in [(1, 1), (1, 4096), (7, 3), (1000, 17), (1 << 20, 1 << 20)] {
            let decoded = decode(coding, &body, step, room, 5000);
            assert!(decoded.as_ref() == Ok(&plain), "{coding:?} {step} {room}");
        }
        assert_eq!(whole(coding, &packed(coding, b"")), Ok(Vec::new()));
    }
}

#[test]
fn a_large_body_is_decoded() {
    let plain = prose(3 * MIB);
    for coding in ALL {
        assert!(whole(coding, &packed(coding, &plain)) == Ok(plain.clone()));
    }
}

#[test]
fn what_follows_or_is_missing_is_refused() {
    let plain = prose(300);
    for coding in ALL {
        let body = packed(coding, &plain);
        for end in 0..body.len() {
            let cut = whole(coding, &body[..end]);
            assert_eq!(cut, Err(CodingError::Truncated), "{coding:?} {end}");
        }
        for more in [&b"\n"[..], &b"\0"[..], &body[..]] {
            for step in [1, 64, body.len(), body.len() + more.len()] {
                let trailing = decode(coding, &[&body, more].concat(), step, 1 << 14, 1 << 20);
                assert_eq!(trailing, Err(CodingError::Trailing), "{coding:?} {step}");
            }
        }
    }
}

#[test]
fn other_forms_than_those_named_are_broken() {
    let plain = prose(300);
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    raw.write_all(&plain).unwrap();
    let raw = raw.finish().unwrap();
    let mut skippable = vec![0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, b'x'];
    skippable.extend(packed(Coding::Zstd, &plain));
    let mut wrong_sum = packed(Coding::Gzip, &plain);
    let at = wrong_sum.len() - 8;
    wrong_sum[at] ^= 1;
    let cases = [
        (Coding::Deflate, raw),
        (Coding::Deflate, packed(Coding::Gzip, &plain)),
        (Coding::Gzip, packed(Coding::Deflate, &plain)),
        (Coding::Gzip, wrong_sum),
        (Coding::Zstd, packed(Coding::Gzip, &plain)),
        (Coding::Zstd, skippable),
        (Coding::Gzip, plain.clone()),
        (Coding::Zstd, plain.clone()),
    ];
    for (number, (coding, body)) in cases.into_iter().enumerate() {
        let decoded = whole(coding, &body);
        assert_eq!(decoded, Err(CodingError::Broken), "case {number}");
    }
}

#[test]
fn too_much_is_refused_at_the_first_byte_of_it() {
    let plain = prose(40_000);
    for coding in ALL {
        let body = packed(coding, &plain);
        assert!(decode(coding, &body, 999, 100, 40_000).is_ok());
        let over = decode(coding, &body, 999, 100, 39_999);
        assert_eq!(over, Err(CodingError::TooLong), "{coding:?}");
    }
}

#[test]
fn bombs_stop_at_two_hundred_times_what_came() {
    for coding in ALL {
        let small = vec![b' '; 150 * 1024];
        assert_eq!(whole(coding, &packed(coding, &small)), Ok(small));
        let bomb = packed(coding, &vec![b' '; 8 * MIB]);
        assert_eq!(whole(coding, &bomb), Err(CodingError::Ratio), "{coding:?}");
        let mut out = Vec::new();
        let stopped = decode_open(coding, &bomb, (1, 1 << 14), u64::MAX, &mut out);
        assert!(stopped.is_err());
        let most = bomb.len().next_multiple_of(CODING_PIECE_BYTES) as u64 * CODING_RATIO_MAX;
        assert!(out.len() as u64 <= most, "{coding:?}: {}", out.len());
    }
}

#[test]
fn windows_are_bounded_and_memory_is_known_from_the_first_bytes() {
    let plain = prose(MIB);
    for (window, fits) in [(10, true), (21, true), (23, true), (24, false), (27, false)] {
        let body = zstd(&plain, window);
        let asked = memory_needed(Coding::Zstd, &body);
        if fits {
            assert!(matches!(asked, Ok(Some(bytes)) if bytes >= 1 << window));
            assert!(whole(Coding::Zstd, &body).is_ok());
        } else {
            assert_eq!(asked, Err(CodingError::Window));
        }
        assert!(body.len() > 18);
    }
    for (window, fits) in [
        (10, true),
        (16, true),
        (17, true),
        (22, true),
        (23, true),
        (24, false),
    ] {
        let body = brotli(&plain[..100_000], window);
        match memory_needed(Coding::Brotli, &body) {
            Ok(Some(bytes)) => assert!(fits && bytes >= 1 << window, "{window}: {bytes}"),
            other => assert!(!fits && other == Err(CodingError::Window), "{other:?}"),
        }
    }
    for coding in [Coding::Zstd, Coding::Brotli] {
        assert_eq!(memory_needed(coding, b""), Ok(None));
    }
    // A declared length of 16 MiB in one segment, which is the window then.
    let single = [0x28, 0xB5, 0x2F, 0xFD, 0xA0, 0, 0, 0, 1];
    assert_eq!(
        memory_needed(Coding::Zstd, &single),
        Err(CodingError::Window)
    );
    assert_eq!(memory_needed(Coding::Zstd, &single[..8]), Ok(None));
    let single = [0x28, 0xB5, 0x2F, 0xFD, 0x60, 1, 0];
    assert_eq!(
        memory_needed(Coding::Zstd, &single),
        Ok(Some(257 + (1 << 20)))
    );
}

#[test]
fn a_zstd_block_counts_as_undecided_until_its_last_byte() {
    // Three blocks: raw, a run, raw and last; then nothing, for the frame has no checksum.
    let mut body = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 0];
    let mut block = |last: u32, kind: u32, size: u32, content: &[u8]| {
        let header = last | kind << 1 | size << 3;
        body.extend(&header.to_le_bytes()[..3]);
        body.extend(content);
        body.len() as u64
    };
    let ends = [
        6,
        block(0, 0, 5, b"hello"),
        block(0, 1, 900, b"x"),
        block(1, 0, 3, b"end"),
    ];
    let plain = [&b"hello"[..], &[b'x'; 900], b"end"].concat();
    assert_eq!(whole(Coding::Zstd, &body), Ok(plain));
    for length in 0..=body.len() {
        let mut out = Vec::new();
        let decoder = decode_open(Coding::Zstd, &body[..length], (1, 4096), 4096, &mut out);
        let settled = decoder.unwrap().settled();
        let begun = ends.iter().rev().find(|end| **end <= length as u64);
        assert_eq!(settled, *begun.unwrap_or(&0), "after {length} bytes");
    }
}

#[test]
fn the_memory_that_is_asked_for_is_what_zstd_takes() {
    let body = zstd(&prose(MIB), 23);
    let asked = memory_needed(Coding::Zstd, &body).unwrap().unwrap();
    let mut context = zstd_safe::DCtx::create();
    let mut room = vec![0; 1 << 14];
    let mut input = zstd_safe::InBuffer::around(&body);
    while input.pos < body.len() {
        let mut output = zstd_safe::OutBuffer::around(&mut room[..]);
        context.decompress_stream(&mut output, &mut input).unwrap();
    }
    let taken = context.sizeof() as u64;
    assert!(
        taken <= asked && asked - taken < 1 << 20,
        "{taken} of {asked}"
    );
}

#[test]
fn the_good_seeds_of_the_fuzz_target_are_good() {
    for name in [
        "gzip",
        "gzip-name",
        "deflate",
        "deflate-stored",
        "zstd-run",
        "brotli",
        "brotli-model-last",
    ] {
        let seed = std::fs::read(format!("fuzz/corpus/coding/{name}")).unwrap();
        let decoded = whole(chosen(seed[0]), &seed[3..]);
        assert!(decoded.is_ok_and(|plain| plain.starts_with(b"{")), "{name}");
    }
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(choice: u8, step: u8, room: u8, plain in "[ab]{0,200}", hit in any::<prop::sample::Index>(), bit in 0_u8..9) {
        let mut body = packed(chosen(choice), plain.as_bytes());
        let at = hit.index(body.len());
        // Eight bits to break, and one to leave it whole.
        body[at] ^= 1_u8.checked_shl(u32::from(bit)).unwrap_or(0);
        cuts(&[&[choice, step, room], &body[..]].concat());
    }
}
