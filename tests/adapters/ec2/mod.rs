//! The calls of the EC2 adapter, and its reading of the answers.

#[cfg(feature = "aws")]
pub(crate) mod cloudwatch_alarm;
#[cfg(feature = "aws")]
pub(crate) mod ec2_describe;
#[cfg(feature = "aws")]
pub(crate) mod ec2_end;
#[cfg(feature = "aws")]
pub(crate) mod ec2_foreign;
#[cfg(feature = "aws")]
pub(crate) mod ec2_launch;
#[cfg(feature = "aws")]
pub(crate) mod ec2_prepare;
#[cfg(feature = "aws")]
pub(crate) mod ec2_refusals;
#[cfg(feature = "aws")]
pub(crate) mod ec2_residue;
#[cfg(feature = "aws")]
pub(crate) mod ec2_subnets;
#[cfg(feature = "aws")]
pub(crate) mod ec2_supply;
