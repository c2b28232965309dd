// A Messages request; prompts, errors and answers are compared with the official package in room
// recipe_check.
#include "api/messages_request.h"

#include <gtest/gtest.h>

#include "api/messages_response.h"

namespace deepinfer {
namespace {

TEST(MessagesRequest, AConversationKeptByTheServerIsRefusedInTheWordsThatSdksKnow) {
  const auto request = parse_messages_request(
      R"({"model": "m", "max_tokens": 8, "thread": {"type": "create"}, "messages": [{"role": "user", "content": "hi"}]})",
      "m");
  ASSERT_FALSE(request.ok());
  const ApiError error = to_api_error(request.error());
  EXPECT_EQ(error.http_status, 400);
  EXPECT_NE(to_messages_json(error, "").find(
                R"("details":{"error_code":"thread_unsupported_request","unsupported":["thread"]})"),
            std::string::npos);
  EXPECT_EQ(to_messages_json(http_error(404, "x"), "").find("details"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
