//! Everything to buy: money, places, requirements and offers.
//!
//! The lowest layer: data and arithmetic, with no imports from our other modules. It has no clock,
//! calls or files. `policy` ranks offers.

mod catalog;
mod cuda;
mod fallback_cost;
mod machine_type;
mod money;
mod offer;
mod price_history;
mod price_rule;
mod quota_kinds;
mod region_names;
mod region_zone;
mod requirement;
mod span;
mod speed;
mod spelling;
mod supply;

pub use catalog::{Catalog, Dated, beside_an_hour};
pub use cuda::{Cuda, CudaError};
pub use fallback_cost::{FallbackCost, FallbackCostError};
pub use machine_type::{Fit, MachineType, has_a_size, is_bare_metal, none_so_large};
pub use money::{MoneyError, Usd, UsdPerHour};
pub use offer::{Arch, Market, Offer};
pub use price_history::{PriceHistory, PricePoint};
pub use price_rule::{PriceRule, PriceRuleError};
pub use quota_kinds::{
    QUOTA_KINDS, QuotaKind, gpu_quotas, share_a_quota, uncounted, uncounted_families,
};
pub use region_names::{nearest_regions, unknown_region};
pub use region_zone::{CloudKind, Region, Zone};
pub use requirement::{GpuRequirement, RequirementError};
pub use span::{Span, SpanError, elapsed};
pub use speed::Speeds;
pub use spelling::did_you_mean;
pub use supply::{Quota, Supply, is_of_any};
