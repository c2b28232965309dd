// AWS Signature Version 4 of one request, as S3 wants it. Pure functions over strings.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer::store {

struct S3Credentials {
  std::string access_key, secret_key, region;
};

struct S3Request {
  std::string method;  // "GET"
  std::string path;    // percent-encoded, begins with '/'
  std::string query;   // canonical: sorted, encoded, "name=value"; empty for none
  std::vector<std::pair<std::string, std::string>> headers;  // to sign: lower-case names, sorted, host included
  std::string payload_sha256;                                // in hexadecimal
};

std::string sha256_hex(std::span<const std::byte> bytes);

// The value of the Authorization header. `time`: "20130524T000000Z", that of x-amz-date.
std::string s3_authorization(const S3Credentials& credentials, const S3Request& request, const std::string& time);

}  // namespace deepinfer::store
