//! The subnets that the configuration names, and how each reaches the internet.
//!
//! It sends two calls to a region at the same time, and changes nothing. Not here: what each route
//! is good for (`policy::account::subnet_egress`).

use aws_sdk_ec2::types::{Route, RouteState, RouteTable};

use super::doctor::AwsDoctor;
use crate::account::lookup::{Found, SubnetFound, WayOut};
use crate::adapters::aws::ec2::subnets;
use crate::adapters::aws::service_error::found;
use crate::adapters::aws::session_cache::LaunchSubnet;
use crate::market::Region;
use crate::ports::chain;

/// The destination that no more specific route takes.
const ANYWHERE: &str = "0.0.0.0/0";

impl AwsDoctor {
    /// The configured subnets that are in the region.
    pub async fn subnets(&self, region: &str) -> Found<Vec<SubnetFound>> {
        let region = Region::new(region);
        let ec2 = self.session().ec2(&region).await;
        let tables = ec2.describe_route_tables().into_paginator().items().send().collect();
        let (places, tables): (_, Result<Vec<RouteTable>, _>) =
            tokio::join!(subnets::find(self.session(), &region), tables);
        match (places, found(tables)) {
            (Ok(places), Found::There(tables)) => {
                Found::There(places.iter().map(|place| subnet_found(place, &tables)).collect())
            }
            (Err(error), _) => Found::Unknown(chain(&error)),
            (_, Found::Unknown(why)) => Found::Unknown(why),
            (_, Found::Nothing) => Found::Nothing,
        }
    }
}

fn subnet_found(place: &LaunchSubnet, tables: &[RouteTable]) -> SubnetFound {
    let way_out = table_of(place, tables).map_or(WayOut::Nothing, way_out);
    SubnetFound { id: place.id.clone(), gives_address: place.gives_address, way_out }
}

/// The route table of the subnet, else the main one of its network.
fn table_of<'a>(place: &LaunchSubnet, tables: &'a [RouteTable]) -> Option<&'a RouteTable> {
    let own = tables.iter().find(|table| {
        table.associations().iter().any(|with| with.subnet_id() == Some(place.id.as_str()))
    });
    let is_main = |table: &&RouteTable| {
        table.vpc_id() == Some(place.network.as_str())
            && table.associations().iter().any(|with| with.main() == Some(true))
    };
    own.or_else(|| tables.iter().find(is_main))
}

fn way_out(table: &RouteTable) -> WayOut {
    match table.routes().iter().find(|route| route.destination_cidr_block() == Some(ANYWHERE)) {
        None => WayOut::Nothing,
        Some(route) if route.state() == Some(&RouteState::Blackhole) => WayOut::Dead,
        Some(route) if is_internet_gateway(route) => WayOut::Gateway,
        Some(_) => WayOut::Other,
    }
}

fn is_internet_gateway(route: &Route) -> bool {
    route.gateway_id().is_some_and(|id| id.starts_with("igw-"))
}
