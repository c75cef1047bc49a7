//! The OpenAPI document. utoipa makes the schemas from the types.

use axum::response::Response;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as Document, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::answer::{Problem, json};
use super::{acts, machines, reads};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lamplighter",
        description = "Jobs on cloud GPU machines: state, cost, measurements, and their end.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    paths(
        reads::overview,
        reads::jobs,
        reads::job,
        reads::plot,
        reads::explain,
        reads::receipt,
        reads::log,
        reads::costs,
        machines::machines,
        acts::stop,
        acts::cancel,
        acts::extend,
        acts::keep
    ),
    components(schemas(Problem)),
    security(("token" = [])),
    modifiers(&TokenScheme, &Problems)
)]
struct ApiDocument;

/// `GET /api/v1/openapi.json`
pub async fn openapi() -> Response {
    json(&document())
}

pub fn document() -> Document {
    ApiDocument::openapi()
}

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut Document) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The token is in the file `web-token` of the state folder"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Every operation can fail in these ways.
struct Problems;

const PROBLEMS: &[(&str, &str)] = &[
    ("400", "The request is not understood"),
    ("401", "The token is missing"),
    ("403", "The host, the origin or the kind of token is not allowed"),
    ("404", "There is no such job, attempt or receipt"),
    ("409", "The job cannot do this now, or a question must be confirmed"),
    ("502", "The job root cannot be reached"),
];

impl Modify for Problems {
    fn modify(&self, document: &mut Document) {
        let operations = document
            .paths
            .paths
            .values_mut()
            .flat_map(|item| [item.get.as_mut(), item.post.as_mut()].into_iter().flatten());
        for operation in operations {
            for (status, description) in PROBLEMS {
                let content =
                    ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
                let response = ResponseBuilder::new()
                    .description(*description)
                    .content("application/json", content)
                    .build();
                let responses = &mut operation.responses.responses;
                responses.insert((*status).to_owned(), response.into());
            }
        }
    }
}
