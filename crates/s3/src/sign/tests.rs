//! The examples that AWS has published: of its test suite (service `service`), and of the S3 documentation.

use castle_secrets::Secret;

use super::*;

fn credentials(id: &str, secret: &str, token: Option<&str>) -> Credentials {
    Credentials {
        access_key_id: id.to_owned(),
        secret_access_key: Secret::from(secret.to_owned()),
        session_token: token.map(|token| Secret::from(token.to_owned())),
    }
}

fn nothing() -> String {
    sha256_hex(b"")
}

/// One case of AWS's suite: its signature.
fn suite(method: &str, path: &str, query: &[(&str, &str)], headers: &[(&str, &str)]) -> String {
    let credentials = credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None);
    let stamp = Stamp::parse("20150830T123600Z").unwrap();
    let mut headers = headers.to_vec();
    headers.push(("x-amz-date", "20150830T123600Z"));
    let (query, body) = (encode_query(query), nothing());
    let parts =
        Parts { method, host: "example.amazonaws.com", path, query: &query, headers: &headers, body_sha256: &body };
    let (authorization, signature) = authorize(&parts, &credentials, "us-east-1", "service", &stamp);
    assert!(authorization.ends_with(&format!("Signature={signature}")), "{authorization}");
    signature
}

#[test]
fn the_published_suite() {
    let vanilla = suite("GET", "/", &[], &[]);
    assert_eq!(vanilla, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    let post = suite("POST", "/", &[], &[]);
    assert_eq!(post, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    let unordered = suite("GET", "/", &[("Param2", "value2"), ("Param1", "value1")], &[]);
    assert_eq!(unordered, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
    let utf8 = suite("GET", &encode_path("/ሴ"), &[], &[]);
    assert_eq!(utf8, "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
    let trimmed = suite("GET", "/", &[], &[("my-header1", " value1"), ("my-header2", " \"a   b   c\"")]);
    assert_eq!(trimmed, "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

/// One example of the S3 documentation: the whole header.
fn s3(method: &str, path: &str, query: &[(&str, &str)], headers: &[(&str, &str)], body: &[u8]) -> String {
    let credentials = credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None);
    let stamp = Stamp::parse("20130524T000000Z").unwrap();
    let (query, body) = (encode_query(query), sha256_hex(body));
    let host = "examplebucket.s3.amazonaws.com";
    let parts = Parts { method, host, path, query: &query, headers, body_sha256: &body };
    sign(&parts, &credentials, "us-east-1", &stamp).authorization().to_owned()
}

#[test]
fn the_examples_of_the_documentation() {
    assert_eq!(
        s3("GET", "/test.txt", &[], &[("range", "bytes=0-9")], b""),
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
         Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
    let headers = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
    assert_eq!(
        s3("PUT", &encode_path("/test$file.text"), &[], &headers, b"Welcome to Amazon S3."),
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, \
         Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    );
    let lifecycle = s3("GET", "/", &[("lifecycle", "")], &[], b"");
    assert!(lifecycle.ends_with("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"), "{lifecycle}");
    let listed = s3("GET", "/", &[("prefix", "J"), ("max-keys", "2")], &[], b"");
    assert!(listed.ends_with("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"), "{listed}");
}

#[test]
fn a_session_token_is_signed_and_sent() {
    let stamp = Stamp::parse("20260102T030405Z").unwrap();
    let body = nothing();
    let parts = Parts { method: "GET", host: "h", path: "/", query: "", headers: &[], body_sha256: &body };
    let signed = sign(&parts, &credentials("AKID", "secret", Some("token")), "eu-west-1", &stamp);
    assert!(
        signed.authorization().contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,")
    );
    assert!(signed.headers.iter().any(|(name, value)| *name == "x-amz-security-token" && value.as_str() == "token"));
    let without = sign(&parts, &credentials("AKID", "secret", None), "eu-west-1", &stamp);
    assert_ne!(signed.signature, without.signature);
}

#[test]
fn keys_are_encoded_byte_by_byte() {
    assert_eq!(encode_path("/a b/c+d/~e/ü/%/=&?#'()*!"), "/a%20b/c%2Bd/~e/%C3%BC/%25/%3D%26%3F%23%27%28%29%2A%21");
    assert_eq!(encode_query(&[("prefix", "a/b c"), ("list-type", "2")]), "list-type=2&prefix=a%2Fb%20c");
    assert_eq!(encode_query(&[]), "");
}

#[test]
fn stamps_know_the_calendar() {
    let stamp = |seconds| Stamp::since_epoch(Duration::from_secs(seconds)).to_string();
    assert_eq!(stamp(0), "19700101T000000Z");
    assert_eq!(stamp(951_782_399), "20000228T235959Z");
    assert_eq!(stamp(951_782_400), "20000229T000000Z");
    assert_eq!(stamp(1_440_938_160), "20150830T123600Z");
    assert_eq!(stamp(1_767_323_045), "20260102T030405Z");
    assert_eq!(stamp(4_107_542_400), "21000301T000000Z");
    assert_eq!(Stamp::parse("20260102T030405Z"), Some(Stamp::since_epoch(Duration::from_secs(1_767_323_045))));
    for odd in
        ["", "2026-01-02T03:04:05Z", "20260102T030405", "20260102 030405Z", "2026010xT030405Z", "2026010€030405Z"]
    {
        assert_eq!(Stamp::parse(odd), None, "{odd}");
    }
}
