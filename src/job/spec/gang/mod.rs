//! Several machines, one job: what the job file says of them, and what each member knows.

pub(crate) mod check_gang;
pub(crate) mod gang_member;
pub(crate) mod gang_role;
pub(crate) mod gang_spec;
pub(crate) mod member_specs;
