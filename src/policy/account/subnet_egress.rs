//! Whether machines in the user's subnets can reach the internet, judged by the subnets' routes.
//!
//! ```text
//!   0.0.0.0/0 ──> internet gateway, and the subnet gives public addresses ─> yes
//!             ├─> a NAT, a transit gateway, another machine ───────────────> as far as routes tell
//!             └─> a gateway without an address, no route, a dead route ────> only by endpoints
//! ```
//! A machine that cannot fetch its agent powers itself off after some billed minutes. It reports
//! the reason only on its console. This module makes no calls.

use super::doctor::Check;
use crate::account::lookup::{Found, SubnetFound, WayOut};

/// `found`: the configured subnets of this region; `None` if there are none.
pub fn judge_subnets(region: &str, found: &Found<Vec<SubnetFound>>) -> Option<Check> {
    let name = format!("subnets, {region}");
    let subnets = match found {
        Found::Unknown(why) => return Some(Check::unseen(name, why)),
        Found::Nothing => return None,
        Found::There(subnets) if subnets.is_empty() => return None,
        Found::There(subnets) => subnets,
    };
    let shut: Vec<&SubnetFound> =
        subnets.iter().filter(|subnet| no_way_out(subnet).is_some()).collect();
    let Some(first) = shut.first() else {
        let ids: Vec<&str> = subnets.iter().map(|subnet| subnet.id.as_str()).collect();
        return Some(Check::ok(
            name,
            format!("{} {} a way out", ids.join(", "), if ids.len() == 1 { "has" } else { "have" }),
        ));
    };
    let said: Vec<String> = shut
        .iter()
        .filter_map(|subnet| Some(format!("{} {}", subnet.id, no_way_out(subnet)?)))
        .collect();
    let said = format!(
        "{}: a machine there reaches what the VPC has endpoints for, and without any cannot fetch its agent",
        said.join("; ")
    );
    Some(Check::warning(name, said).fix(cure(region, first)))
}

/// Why a machine there cannot reach the internet; `None`: it can.
fn no_way_out(subnet: &SubnetFound) -> Option<&'static str> {
    match subnet.way_out {
        WayOut::Gateway if subnet.gives_address => None,
        WayOut::Gateway => {
            Some("gives no public address, and its way out, an internet gateway, takes no other")
        }
        WayOut::Other => None,
        WayOut::Dead => Some("has a route out that leads nowhere"),
        WayOut::Nothing => Some("has no route out"),
    }
}

fn cure(region: &str, subnet: &SubnetFound) -> String {
    let id = &subnet.id;
    match subnet.way_out {
        WayOut::Gateway => {
            format!(
                "`aws ec2 modify-subnet-attribute --region {region} --subnet-id {id} --map-public-ip-on-launch`, or a route to a NAT"
            )
        }
        _ => format!(
            "a default route to an internet gateway or a NAT (`aws ec2 describe-route-tables --region {region}` shows what is there), another subnet \
             in `subnets` of [aws], or endpoints for S3, EC2 and CloudWatch, which are not looked for here"
        ),
    }
}

/// Subnets that are in no configured region.
pub fn judge_absent(absent: &[String]) -> Option<Check> {
    let is = if absent.len() == 1 { "is" } else { "are" };
    let said = format!("{} {is} in none of the regions", absent.join(", "));
    (!absent.is_empty()).then(|| {
        Check::failure("subnets", said).fix("`subnets` and `regions` of [aws] in the configuration")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::account::doctor::Level;

    fn subnet(id: &str, gives_address: bool, way_out: WayOut) -> SubnetFound {
        SubnetFound { id: id.into(), gives_address, way_out }
    }

    #[test]
    fn subnet_without_egress_gets_a_warning_and_a_fix_others_pass() {
        for (gives_address, way_out, is_well) in [
            (true, WayOut::Gateway, true),
            (false, WayOut::Gateway, false),
            (false, WayOut::Other, true),
            (true, WayOut::Dead, false),
            (true, WayOut::Nothing, false),
        ] {
            let found = Found::There(vec![
                subnet("subnet-a", true, WayOut::Gateway),
                subnet("subnet-b", gives_address, way_out),
            ]);
            let check = judge_subnets("us-east-1", &found).expect("it is said");
            let expected = if is_well { Level::Ok } else { Level::Warning };
            assert_eq!((check.level, check.fix.is_some()), (expected, !is_well), "{check:?}");
            assert!(
                check.said.contains("subnet-b") && check.said.contains("subnet-a") == is_well,
                "{check:?}"
            );
        }
        assert_eq!(
            judge_subnets("us-east-1", &Found::There(Vec::new())),
            None,
            "its subnets are in another region"
        );
        assert!(
            judge_subnets("us-east-1", &Found::Unknown("no answer".into()))
                .is_some_and(|check| check.level == Level::Unknown)
        );
        assert_eq!(judge_absent(&[]), None);
        assert!(
            judge_absent(&["subnet-x".into()])
                .is_some_and(|check| check.level == Level::Failure && check.fix.is_some())
        );
    }
}
