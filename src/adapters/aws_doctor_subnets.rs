//! The subnets that the configuration names, and the way that each has out of its network.
//!
//! Two calls a region, at the same time. Changes nothing. What must never live here: what a way out is worth (`policy::way_out`).

use aws_sdk_ec2::types::{Route, RouteState, RouteTable, Subnet};

use super::aws_doctor::AwsDoctor;
use super::aws_said::found;
use super::ec2_describe::filter;
use crate::instance::setup::{Found, SubnetFound, WayOut};
use crate::market::Region;

/// Where everything goes that no other route takes.
const ANYWHERE: &str = "0.0.0.0/0";

impl AwsDoctor {
    /// Those of these that are in the region.
    pub async fn subnets(&self, named: &[String], region: &str) -> Found<Vec<SubnetFound>> {
        let ec2 = self.session().ec2(&Region::new(region)).await;
        let subnets = ec2.describe_subnets().filters(filter("subnet-id", named.to_vec())).send();
        let tables = ec2.describe_route_tables().into_paginator().items().send().collect();
        let (subnets, tables): (_, Result<Vec<RouteTable>, _>) = tokio::join!(subnets, tables);
        match (found(subnets), found(tables)) {
            (Found::There(subnets), Found::There(tables)) => {
                Found::There(subnets.subnets().iter().filter_map(|subnet| seen(subnet, &tables)).collect())
            }
            (Found::Unknown(why), _) | (_, Found::Unknown(why)) => Found::Unknown(why),
            (Found::Nothing, _) | (_, Found::Nothing) => Found::Nothing,
        }
    }
}

fn seen(subnet: &Subnet, tables: &[RouteTable]) -> Option<SubnetFound> {
    let id = subnet.subnet_id()?;
    let way_out = table_of(subnet, tables).map_or(WayOut::Nothing, way_out);
    Some(SubnetFound { id: id.to_owned(), gives_address: subnet.map_public_ip_on_launch() == Some(true), way_out })
}

/// The one that the subnet is associated with, else the main one of its network.
fn table_of<'a>(subnet: &Subnet, tables: &'a [RouteTable]) -> Option<&'a RouteTable> {
    let own =
        tables.iter().find(|table| table.associations().iter().any(|with| with.subnet_id().is_some() && with.subnet_id() == subnet.subnet_id()));
    let is_main = |table: &&RouteTable| table.vpc_id() == subnet.vpc_id() && table.associations().iter().any(|with| with.main() == Some(true));
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
