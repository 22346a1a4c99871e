//! What became of the wish to have usage sent where the client did not ask for it.

/// How one streamed request to a provider with `usage: inject` went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The client asked itself: nothing was changed.
    Asked,
    /// The request has a content coding and was sent on with it: nothing was changed.
    RequestCoded,
    /// The request did not fit the window: nothing was changed.
    RequestBeyondWindow,
    /// A key that counts came twice, or in a spelling that not everybody reads alike: nothing was changed.
    RequestAmbiguous,
    /// `stream_options` or what it holds has a type of its own: nothing was changed.
    RequestOtherType,
    /// Usage was asked for; no answer has begun.
    NoAnswer,
    /// Usage was asked for; the answer is no event stream with a status of 2xx.
    NoStream,
    /// Usage was asked for; the answer has a content coding, and the extra chunk stays.
    AnswerCoded,
    /// Usage was asked for; the answer has a declared length, and the extra chunk stays.
    AnswerSized,
    /// Usage was asked for; no extra chunk was seen.
    NotFound,
    /// Usage was asked for, and the extra chunk taken out again.
    Removed,
}

impl Injection {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
        Self::Asked,
        Self::RequestCoded,
        Self::RequestBeyondWindow,
        Self::RequestAmbiguous,
        Self::RequestOtherType,
        Self::NoAnswer,
        Self::NoStream,
        Self::AnswerCoded,
        Self::AnswerSized,
        Self::NotFound,
        Self::Removed,
    ];

    /// The word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::RequestCoded => "request_coded",
            Self::RequestBeyondWindow => "request_beyond_window",
            Self::RequestAmbiguous => "request_ambiguous",
            Self::RequestOtherType => "request_other_type",
            Self::NoAnswer => "no_answer",
            Self::NoStream => "no_stream",
            Self::AnswerCoded => "answer_coded",
            Self::AnswerSized => "answer_sized",
            Self::NotFound => "not_found",
            Self::Removed => "removed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_stand_at_their_discriminants_and_have_words_of_their_own() {
        for (at, outcome) in Injection::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
            let same = |other: &&Injection| other.as_str() == outcome.as_str();
            assert_eq!(Injection::ALL.iter().filter(same).count(), 1, "{outcome:?}");
        }
    }
}
