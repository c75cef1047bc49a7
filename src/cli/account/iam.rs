//! `lamp iam NAME`: prints a policy of `config/iam`, filled in for this user and job root. It sends
//! no request.
//!
//! A policy allows only the machines of one owner. The person who prints it may be another one, so
//! a note on stderr names the owner.

use clap::{Args as ClapArgs, ValueEnum};

use crate::account::permissions::{Permissions, PolicyName, partition};
use crate::account::setup::box_role;
use crate::cli::{Context, ExitCode, Fault};

/// Print the IAM policy that a part of Lamplighter needs
///
/// It is bound to the machines of one owner, by the tag `lamplighter:owner`: to you, unless --owner
/// says for whom it is. You are LAMP_OWNER, or `owner` of the configuration, or your login name, in
/// this order.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[arg(value_enum)]
    pub name: Name,

    /// The bucket and prefix of the job root [default: as the job root, when it is a bucket]
    #[arg(long, value_name = "BUCKET[/PREFIX]")]
    pub bucket: Option<String>,

    /// Where machines may be bought, several with commas [default: `regions` in [aws] of the
    /// configuration]
    #[arg(long, value_name = "REGION", value_delimiter = ',')]
    pub region: Vec<String>,

    /// Which machines may be bought, several with commas: `g5.*,g6.*`
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "*")]
    pub types: Vec<String>,

    /// The owner of the machines, if that is another user: their LAMP_OWNER, or else their login
    /// where they type `lamp`
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,

    /// The role of the machines, where it is not called as its instance profile [default:
    /// `instance_profile` in [aws] of the configuration, else lamplighter-box]
    #[arg(long, value_name = "NAME")]
    pub role: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The user who types `lamp init aws` and `lamp uninit aws`, once
    Setup,
    /// The user who types `lamp`, and the daemon
    Controller,
    /// The machines
    Box,
    /// The sweeper in the cloud
    Sweeper,
    /// The schedule that calls the sweeper
    SweeperSchedule,
    /// The user who opens shells with `lamp ssh`, beside `controller`
    Session,
    /// The machines, where shells may be opened, beside `box`
    BoxSession,
}

/// The pattern of `lamp init aws`'s bucket names: at set-up no bucket exists yet.
const BUCKETS: &str = "lamplighter-*";

/// # Errors
/// Fails when the bucket or the region is unknown.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let named =
        args.bucket.as_ref().map(|bucket| format!("s3://{}", bucket.trim_start_matches("s3://")));
    let root = named.as_deref().unwrap_or(&context.roots.url);
    let missing = |what: &str, hint: &str| {
        Err(Fault::new(ExitCode::USAGE, format!("nothing says which {what}")).hint(hint))
    };
    let is_setup = args.name == Name::Setup;
    let Some(rest) = root.strip_prefix("s3://").or(is_setup.then_some(BUCKETS)) else {
        return missing(
            "bucket",
            "--bucket names it; `lamp init aws` makes one and writes it into the configuration",
        );
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    let regions = if args.region.is_empty() {
        context.config.user.aws.regions.clone().unwrap_or_default()
    } else {
        args.region.clone()
    };
    // Set-up permissions are bound by names. The region only gives the partition in each ARN.
    if regions.is_empty() && !is_setup {
        return missing("region", "--region names it, or `regions` in [aws] of the configuration");
    }
    // `lamp init aws` creates only resources with its own names.
    let profile = context.config.user.aws.instance_profile.as_deref().filter(|_| !is_setup);
    let permissions = Permissions {
        partition: partition(regions.first().map_or("", String::as_str)).to_owned(),
        owner: args.owner.clone().unwrap_or_else(|| context.config.user.owner.clone()),
        bucket: bucket.to_owned(),
        prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
        role: args.role.clone().unwrap_or_else(|| box_role(profile).to_owned()),
        regions: regions.clone(),
        instance_types: args.types.clone(),
        secrets: context.config.user.aws.secrets(),
    };
    context.printer.json(&permissions.policy(match args.name {
        Name::Setup => PolicyName::Setup,
        Name::Controller => PolicyName::Controller,
        Name::Box => PolicyName::Box,
        Name::Sweeper => PolicyName::Sweeper,
        Name::SweeperSchedule => PolicyName::SweeperSchedule,
        Name::Session => PolicyName::Session,
        Name::BoxSession => PolicyName::BoxSession,
    }));
    // The policies of machines name no owner.
    if args.owner.is_none() && !matches!(args.name, Name::Box | Name::BoxSession) {
        let you = &context.config.user.owner;
        context.printer.note(format!(
            "for the owner `{you}`, who you are here; `--owner NAME` prints it for another user"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
