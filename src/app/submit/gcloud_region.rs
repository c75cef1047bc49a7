//! Regions of Google, and the region of AWS that is near each.

/// A region of Google and one of AWS.
pub struct NearRegion {
    pub google: &'static str,
    pub aws: &'static str,
}

const fn near(google: &'static str, aws: &'static str) -> NearRegion {
    NearRegion { google, aws }
}

/// The regions that the training service had. The same city or state where there is one.
pub const REGIONS: [NearRegion; 23] = [
    near("us-central1", "us-east-2"),
    near("us-east1", "us-east-1"),
    near("us-east4", "us-east-1"),
    near("us-west1", "us-west-2"),
    near("us-west2", "us-west-1"),
    near("us-west3", "us-west-2"),
    near("us-west4", "us-west-2"),
    near("northamerica-northeast1", "ca-central-1"),
    near("southamerica-east1", "sa-east-1"),
    near("europe-west1", "eu-central-1"),
    near("europe-west2", "eu-west-2"),
    near("europe-west3", "eu-central-1"),
    near("europe-west4", "eu-central-1"),
    near("europe-west6", "eu-central-1"),
    near("europe-north1", "eu-north-1"),
    near("asia-east1", "ap-northeast-1"),
    near("asia-east2", "ap-east-1"),
    near("asia-northeast1", "ap-northeast-1"),
    near("asia-northeast2", "ap-northeast-3"),
    near("asia-northeast3", "ap-northeast-2"),
    near("asia-south1", "ap-south-1"),
    near("asia-southeast1", "ap-southeast-1"),
    near("australia-southeast1", "ap-southeast-2"),
];

/// The region of AWS for a word. A region of AWS stays what it is; `None`: neither.
pub fn aws_region(word: &str) -> Option<&str> {
    let near = REGIONS.iter().find(|row| row.google == word).map(|row| row.aws);
    near.or_else(|| crate::market::nearest_regions(word).is_none().then_some(word))
}

/// The known regions, for the hint at an unknown one.
pub fn known_regions() -> String {
    REGIONS.iter().map(|row| row.google).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_google_have_a_near_one() {
        assert_eq!(aws_region("us-central1"), Some("us-east-2"));
        assert_eq!(aws_region("eu-west-1"), Some("eu-west-1"));
        assert_eq!(aws_region("us-centrl1"), None);
        for row in &REGIONS {
            assert_eq!(aws_region(row.aws), Some(row.aws), "{}", row.google);
        }
    }
}
