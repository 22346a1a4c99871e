//! Why an exchange ended: a closed set, one word each, the same in logs, metrics and documents.

/// How an exchange ended. Each clock has a word of its own, so that the one that rang is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndReason {
    /// The response was written to its last byte.
    Complete,
    /// The request broke a rule of HTTP, of its API or of the configuration; it was answered.
    Rejected,
    /// The client ended or reset its connection first.
    ClientClosed,
    /// `timeouts.head`: the request head took too long.
    HeadTimeout,
    /// `timeouts.idle`: nothing came of a body that no provider waits for yet.
    ClientIdleTimeout,
    /// `timeouts.request_progress`: a body came too slowly while a provider waits for it.
    RequestProgressTimeout,
    /// `timeouts.client_write`: the client took nothing of its response.
    ClientWriteTimeout,
    /// `timeouts.reservation`: no memory was free to hold the body.
    ReservationTimeout,
    /// `timeouts.connect`: the provider could not be reached in time.
    ConnectTimeout,
    /// `timeouts.handshake`: the provider did not finish the TLS handshake.
    HandshakeTimeout,
    /// `timeouts.first_byte`: the provider did not begin to answer.
    FirstByteTimeout,
    /// `timeouts.idle` of the provider: it fell silent inside its response.
    UpstreamIdleTimeout,
    /// `timeouts.idle` of the provider: it took nothing of the request.
    UpstreamWriteTimeout,
    /// `timeouts.connection_wait`: no connection to the provider came free; or it has all the
    /// requests that may wait for one, or that may hold memory.
    UpstreamBusy,
    /// The provider refused the connection, or no descriptor was left for one.
    UpstreamUnreachable,
    /// No encrypted connection to the provider came about.
    UpstreamTls,
    /// The provider ended the connection before its response began.
    UpstreamClosed,
    /// The provider ended the connection inside its response.
    UpstreamCut,
    /// What the provider sent is not HTTP that can be relayed.
    UpstreamMalformed,
    /// `timeouts.drain`: the process ended before the exchange did.
    Drained,
    /// A defect of the gateway.
    #[default]
    Internal,
}

impl EndReason {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Complete,
        Self::Rejected,
        Self::ClientClosed,
        Self::HeadTimeout,
        Self::ClientIdleTimeout,
        Self::RequestProgressTimeout,
        Self::ClientWriteTimeout,
        Self::ReservationTimeout,
        Self::ConnectTimeout,
        Self::HandshakeTimeout,
        Self::FirstByteTimeout,
        Self::UpstreamIdleTimeout,
        Self::UpstreamWriteTimeout,
        Self::UpstreamBusy,
        Self::UpstreamUnreachable,
        Self::UpstreamTls,
        Self::UpstreamClosed,
        Self::UpstreamCut,
        Self::UpstreamMalformed,
        Self::Drained,
        Self::Internal,
    ];

    /// The word in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Rejected => "rejected",
            Self::ClientClosed => "client_closed",
            Self::HeadTimeout => "head_timeout",
            Self::ClientIdleTimeout => "client_idle_timeout",
            Self::RequestProgressTimeout => "request_progress_timeout",
            Self::ClientWriteTimeout => "client_write_timeout",
            Self::ReservationTimeout => "reservation_timeout",
            Self::ConnectTimeout => "connect_timeout",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::UpstreamIdleTimeout => "upstream_idle_timeout",
            Self::UpstreamWriteTimeout => "upstream_write_timeout",
            Self::UpstreamBusy => "upstream_busy",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamTls => "upstream_tls",
            Self::UpstreamClosed => "upstream_closed",
            Self::UpstreamCut => "upstream_cut",
            Self::UpstreamMalformed => "upstream_malformed",
            Self::Drained => "drained",
            Self::Internal => "internal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let words: HashSet<_> = EndReason::ALL.iter().map(|end| end.as_str()).collect();
        assert_eq!(words.len(), EndReason::ALL.len());
        for (at, end) in EndReason::ALL.iter().enumerate() {
            assert_eq!(*end as usize, at, "{end:?} is out of order");
        }
    }
}
