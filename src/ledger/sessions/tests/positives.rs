//! The table that cores read.

use super::*;

#[test]
fn a_core_finds_what_the_store_has_written_and_nothing_else() {
    let positives = Positives::default();
    assert_eq!(positives.find(&KEY, 0), None);
    positives.insert(&KEY, Evidence::Pi, 10);
    assert_eq!(positives.find(&KEY, 10), Some(Evidence::Pi));
    let other = Key::new(Scope::SecureSession, *KEY.id());
    assert_eq!(positives.find(&other, 10), None);
    // Asked for every half hour it stays; after a longer pause the store is asked again.
    assert_eq!(positives.find(&KEY, 40), Some(Evidence::Pi));
    assert_eq!(positives.find(&KEY, 70), Some(Evidence::Pi));
    assert_eq!(positives.find(&KEY, 101), None);
    positives.insert(&KEY, Evidence::Pi, 101);
    assert_eq!(positives.find(&KEY, 101), Some(Evidence::Pi));
}

#[test]
fn a_full_part_of_the_table_gives_up_what_was_asked_for_the_longest_time_ago() {
    let positives = Positives::default();
    let one = |number: u8| {
        let mut id = [1; 32];
        id[0] = number;
        Key::new(Scope::ALeg, id)
    };
    for number in 0..9 {
        positives.insert(&one(number), Evidence::Pi, u32::from(number));
        assert_eq!(
            positives.find(&one(0), u32::from(number)),
            Some(Evidence::Pi)
        );
    }
    assert_eq!(positives.find(&one(1), 9), None);
    let kept = (0..9).filter(|number| positives.find(&one(*number), 9).is_some());
    assert_eq!(kept.count(), 8);
}

/// Readers never see one session's evidence under another's key, whatever the writer does.
#[test]
fn readers_of_a_table_that_is_written_see_whole_places() {
    let positives = Arc::new(Positives::default());
    let evidence =
        |number: u32| Evidence::ALL[usize::try_from(number).unwrap() % Evidence::ALL.len()];
    // Sixteen sessions for the eight places of one set.
    let session = |number: u32| {
        let mut id = [1; 32];
        id[..4].copy_from_slice(&number.to_le_bytes());
        id[8..12].copy_from_slice(&number.to_le_bytes());
        Key::new(Scope::ALeg, id)
    };
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let positives = Arc::clone(&positives);
            thread::spawn(move || {
                for round in 0..200_000_u32 {
                    let number = round % 16;
                    let found = positives.find(&session(number), 0);
                    assert!(found.is_none_or(|it| it == evidence(number)));
                }
            })
        })
        .collect();
    for round in 0..200_000_u32 {
        let number = round.wrapping_mul(7) % 16;
        positives.insert(&session(number), evidence(number), 0);
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn the_table_has_room_for_as_many_sessions_as_are_kept() {
    let positives = Positives::default();
    let most = u32::try_from(SESSIONS_KEPT / 4).unwrap();
    let session = |number: u32| {
        let authority = crate::auth::Authority::new(&[1; 32]).unwrap();
        Key::new(Scope::ALeg, authority.leg("a", &number.to_string()))
    };
    for number in 0..most {
        positives.insert(&session(number), Evidence::Pi, 0);
    }
    let found = (0..most).filter(|number| positives.find(&session(*number), 0).is_some());
    // Keys fall where they fall: in a table filled to a quarter hardly one is crowded out.
    let found = u32::try_from(found.count()).unwrap();
    assert!(found > most - most / 100);
}
