//! Plans, prices and simulations.

#[cfg(feature = "aws")]
pub(crate) mod launch_aws;
#[cfg(feature = "aws")]
pub(crate) mod plan_account;
#[cfg(feature = "aws")]
pub(crate) mod plan_aws;
#[cfg(feature = "aws")]
pub(crate) mod plan_bid;
#[cfg(feature = "aws")]
pub(crate) mod plan_kept;
#[cfg(feature = "aws")]
pub(crate) mod plan_messages;
#[cfg(feature = "aws")]
pub(crate) mod plan_permission;
#[cfg(feature = "aws")]
pub(crate) mod plan_shipped;
pub(crate) mod price_messages;
pub(crate) mod prices;
pub(crate) mod replay;
pub(crate) mod replay_market;
pub(crate) mod simulate;
