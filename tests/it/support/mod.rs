//! What every scenario stands on: the gateway as a child, a scripted origin, a raw client, and the
//! one strict reader that both ends use.

pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod exposition;
pub(crate) mod gateway;
pub(crate) mod ledger;
pub(crate) mod message;
pub(crate) mod origin;
pub(crate) mod postgres;

/// Instantiates each scenario, a function of a driver, once per driver.
macro_rules! on_both_drivers {
    ($($scenario:ident),+ $(,)?) => {
        mod epoll {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::support::gateway::Driver::Epoll);
            })+
        }
        mod io_uring {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::support::gateway::Driver::IoUring);
            })+
        }
    };
}

pub(crate) use on_both_drivers;
