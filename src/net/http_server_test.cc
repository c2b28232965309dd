// The server over real loopback sockets.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <future>
#include <thread>

#include "net/content_encoding.h"
#include "net/http_server.h"
#include "net/test_client.h"

namespace deepinfer {
namespace {

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    options_.error_response = [](int status, std::string message) {
      HttpResponse response;
      response.status = status;
      response.body = std::move(message);
      return response;
    };
  }
  void start(HttpServer::Handler handler) {
    auto server = HttpServer::start(options_, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.error().message();
    server_ = std::move(*server);
  }
  // Answers every request with its method, path, query and body.
  void start_echo() {
    start([](std::shared_ptr<HttpExchange> exchange) {
      const HttpRequest& request = exchange->request();
      HttpResponse response;
      response.body = request.method + " " + request.path + " [" + request.query + "] " + request.body;
      exchange->respond(std::move(response));
    });
  }
  TestClient client() { return TestClient(server_->port()); }

  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersARequestWithItsParts) {
  start_echo();
  TestClient peer = client();
  peer.send("POST /a/b?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_EQ(peer.read_until("hello"),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\nConnection: "
            "keep-alive\r\n\r\n"
            "POST /a/b [x=1] hello");
}

TEST_F(HttpServerTest, AConnectionServesRequestsInOrderWhenTheyArriveTogether) {
  start_echo();
  TestClient peer = client();
  std::string together;
  for (const char* name : {"/one", "/two", "/three"}) {
    together += std::string("GET ") + name + " HTTP/1.1\r\nHost: h\r\n\r\n";
  }
  peer.send(together);
  EXPECT_NE(peer.read_until("GET /one [] "), "");
  EXPECT_NE(peer.read_until("GET /two [] ").find("200 OK"), std::string::npos);
  EXPECT_NE(peer.read_until("GET /three [] ").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, ARequestThatArrivesDuringAnAnswerIsServedAfterIt) {
  std::promise<std::shared_ptr<HttpExchange>> first;
  std::atomic<int> requests{0};
  start([&](std::shared_ptr<HttpExchange> exchange) {
    if (requests++ == 0) return first.set_value(std::move(exchange));
    HttpResponse response;
    response.body = "second";
    exchange->respond(std::move(response));
  });
  TestClient peer = client();
  peer.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = first.get_future().get();
  peer.send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
  exchange->post([exchange] {
    HttpResponse response;
    response.body = "first";
    exchange->respond(std::move(response));
  });
  EXPECT_NE(peer.read_until("first"), "");
  EXPECT_NE(peer.read_until("second").find("second"), std::string::npos);
}

TEST_F(HttpServerTest, ATargetMayNameTheHost) {
  start_echo();
  TestClient peer = client();
  peer.send("GET http://h:1/a/b?x=1 HTTP/1.1\r\nHost: h\r\n\r\nGET http://h HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(peer.read_until("GET /a/b [x=1]").find("GET /a/b [x=1]"), std::string::npos);
  EXPECT_NE(peer.read_until("GET / []").find("GET / []"), std::string::npos);
}

TEST_F(HttpServerTest, AStreamLeavesAsChunks) {
  start([](std::shared_ptr<HttpExchange> exchange) {
    exchange->begin_stream({.status = 200, .content_type = "text/event-stream", .body = "", .headers = {}});
    exchange->write("data: 1\n\n");
    exchange->write("data: 2\n\n");
    exchange->end();
  });
  TestClient peer = client();
  peer.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(peer.read_until("0\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            "Connection: keep-alive\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
}

TEST_F(HttpServerTest, AnOldClientGetsTheStreamWithoutChunks) {
  start([](std::shared_ptr<HttpExchange> exchange) {
    exchange->begin_stream({.status = 200, .content_type = "text/plain", .body = "", .headers = {}});
    exchange->write("piece");
    exchange->end();
  });
  TestClient peer = client();
  peer.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(peer.read_all().ends_with("Connection: close\r\n\r\npiece"));
}

TEST_F(HttpServerTest, TheAnswerToHeadHasNoBody) {
  start_echo();
  TestClient peer = client();
  peer.send("HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(peer.read_all().ends_with("Content-Length: 11\r\nConnection: close\r\n\r\n"));
}

TEST_F(HttpServerTest, WhatIsNoHttpIsRefusedWithAnAnswer) {
  start_echo();
  for (const char* junk : {"\x16\x03\x01\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n",
                           "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: many\r\n\r\n", "GET / HTTP/3.9\r\n\r\n"}) {
    TestClient peer = client();
    peer.send(junk);
    EXPECT_TRUE(peer.read_all().starts_with("HTTP/1.1 400 Bad Request\r\n")) << junk;
  }
}

TEST_F(HttpServerTest, LongHeadersAndBodiesAreRefused) {
  options_.max_header_bytes = 1000;
  options_.max_body_bytes = 100;
  start_echo();
  TestClient header = client();
  header.send("GET / HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n");
  EXPECT_TRUE(header.read_all().starts_with("HTTP/1.1 431 "));
  TestClient length = client();
  length.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n");
  EXPECT_TRUE(length.read_all().starts_with("HTTP/1.1 413 "));
  TestClient chunks = client();
  chunks.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'x') +
              "\r\n0\r\n\r\n");
  EXPECT_TRUE(chunks.read_all().starts_with("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, ARequestThatDoesNotArriveInTimeIsAnswered408) {
  options_.request_timeout = std::chrono::milliseconds(20);
  start_echo();
  TestClient peer = client();
  peer.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_TRUE(peer.read_all().starts_with("HTTP/1.1 408 "));
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosed) {
  options_.idle_timeout = std::chrono::milliseconds(20);
  start_echo();
  EXPECT_EQ(client().read_all(), "");
}

TEST_F(HttpServerTest, AClientThatAsksFirstIsToldToGoOn) {
  start_echo();
  TestClient peer = client();
  peer.send("POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(peer.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  peer.send("hi");
  EXPECT_NE(peer.read_until("POST /x [] hi"), "");
}

TEST_F(HttpServerTest, TheHandlerLearnsThatTheClientIsGone) {
  std::promise<void> gone;
  start([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->on_closed([&gone, exchange] { gone.set_value(); });
    exchange->begin_stream({.status = 200, .content_type = "text/event-stream", .body = "data: 1\n\n", .headers = {}});
  });
  TestClient peer = client();
  peer.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  peer.read_until("data: 1");
  peer.close_now();
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
}

// More than a socket takes while nobody reads.
constexpr size_t kMoreThanASocketTakes = 16 << 20;

TEST_F(HttpServerTest, APeerThatSendsNothingMoreGetsItsAnswer) {
  std::promise<std::shared_ptr<HttpExchange>> begun;
  std::promise<void> told;
  start([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->on_half_closed([&] { told.set_value(); });
    begun.set_value(std::move(exchange));
  });
  TestClient peer = client();
  peer.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = begun.get_future().get();
  peer.stop_sending();
  told.get_future().wait();
  exchange->post([exchange] {
    HttpResponse response;
    response.body = "still";
    exchange->respond(std::move(response));
  });
  EXPECT_TRUE(peer.read_all().ends_with("still"));
}

TEST_F(HttpServerTest, ARequestThatIsCutIsAnswered) {
  start_echo();
  for (const char* cut : {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc", "GET /x HTTP/1.1\r\nHo"}) {
    TestClient peer = client();
    peer.send(cut);
    peer.stop_sending();
    EXPECT_TRUE(peer.read_all().starts_with("HTTP/1.1 400 ")) << cut;
  }
}

TEST_F(HttpServerTest, AClientThatNeverReadsIsDropped) {
  options_.stream_timeout = std::chrono::milliseconds(50);
  std::promise<void> dropped;
  start([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->on_closed([&dropped] { dropped.set_value(); });
    exchange->begin_stream({.status = 200, .content_type = "text/plain", .body = "", .headers = {}});
    exchange->write(std::string(kMoreThanASocketTakes, 'x'));
  });
  TestClient peer = client();
  peer.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(dropped.get_future().wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
}

TEST_F(HttpServerTest, TheWriterLearnsWhenASlowClientHasTakenAll) {
  std::promise<size_t> unsent;
  std::promise<size_t> unsent_when_drained;
  start([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->begin_stream({.status = 200, .content_type = "text/plain", .body = "", .headers = {}});
    exchange->on_drained([&, exchange] {
      unsent_when_drained.set_value(exchange->unsent_bytes());
      exchange->end();
    });
    exchange->write(std::string(kMoreThanASocketTakes, 'x'));
    unsent.set_value(exchange->unsent_bytes());
  });
  TestClient peer = client();
  peer.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_GT(unsent.get_future().get(), kMoreThanASocketTakes / 2);
  EXPECT_GT(peer.read_all().size(), kMoreThanASocketTakes);
  EXPECT_EQ(unsent_when_drained.get_future().get(), 0u);
}

TEST_F(HttpServerTest, AHeaderAndATimerBelongToOneAnswer) {
  start([&](std::shared_ptr<HttpExchange> exchange) {
    const bool first = exchange->request().path == "/first";
    if (first) exchange->add_header("X-Only-First", "yes");
    exchange->after(std::chrono::milliseconds(1), [exchange] { exchange->respond({.body = "late"}); });
  });
  TestClient peer = client();
  peer.send("GET /first HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(peer.read_until("late").find("X-Only-First: yes\r\n"), std::string::npos);
  peer.send("GET /second HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(peer.read_until("late").find("X-Only-First"), std::string::npos);
}

// ---- Who goes away, and how ----

TEST_F(HttpServerTest, WithoutABetterReasonAPeerThatSendsNothingMoreGetsItsAnswer) {
  std::promise<std::shared_ptr<HttpExchange>> begun;
  start([&](std::shared_ptr<HttpExchange> exchange) { begun.set_value(std::move(exchange)); });
  TestClient peer = client();
  peer.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
  peer.stop_sending();
  const auto exchange = begun.get_future().get();
  std::promise<void> told;
  exchange->post([&] { exchange->on_half_closed([&told] { told.set_value(); }); });
  told.get_future().wait();
  exchange->post([exchange] { exchange->respond({.body = "still"}); });
  EXPECT_TRUE(peer.read_all().ends_with("still"));
}

// The system says once that a peer has ended: whoever does not listen then waits for the idle timeout.
TEST_F(HttpServerTest, APeerThatSendsNothingMoreGetsAllItsAnswersAndTheConnectionEnds) {
  start([](std::shared_ptr<HttpExchange> exchange) {
    const auto respond = [exchange] { exchange->respond({.body = "<" + exchange->request().path + ">"}); };
    exchange->request().path.size() % 2 == 0 ? respond() : exchange->post(respond);
  });
  for (int round = 0; round < 300; ++round) {
    TestClient peer = client();
    std::string together;
    for (int i = 0; i <= round % 4; ++i) {
      together += "GET /" + std::string(static_cast<size_t>(i), 'x') + " HTTP/1.1\r\nHost: h\r\n\r\n";
    }
    const size_t cut = round % 3 == 0 ? together.size() / 2 : 0;  // also in two writes
    peer.send(together.substr(0, cut));
    peer.send(together.substr(cut));
    peer.stop_sending();
    const auto begin = std::chrono::steady_clock::now();
    const std::string all = peer.read_all();
    for (int i = 0; i <= round % 4; ++i) {
      EXPECT_NE(all.find("</" + std::string(static_cast<size_t>(i), 'x') + ">"), std::string::npos) << round << "\n"
                                                                                                    << all;
    }
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "left open, round " << round;
  }
}

// ---- What is read in two ways ----

TEST_F(HttpServerTest, ARequestWhoseEndIsNotCertainIsRefusedAndNothingBehindItIsRead) {
  start_echo();
  const std::string hidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";
  struct Case {
    const char* head;
    int status;
  };
  for (const Case& one : std::vector<Case>{
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n", 501},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n", 501},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n", 501},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n", 501},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \r\n", 501},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n", 501},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", 501},
           {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400},
           {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: x\r\nContent-Length: 3\r\n", 400},
           {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n", 400},
           {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n", 400},
           {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length : 3\r\n", 400},
           {"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400},
           {"GET /x HTTP/1.1\r\n", 400},
           {"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400},
           {"GET /x HTTP/1.0\r\nHost: a\r\nHost: a\r\n", 400},
           {"GET /x HTTP/1.1\r\nHost: a b\r\n", 400},
           {"GET /x HTTP/1.1\r\nHost: user@h/\r\n", 400}}) {
    TestClient peer = client();
    peer.send(std::string(one.head) + "\r\n" + hidden);
    const std::string answer = peer.read_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + std::to_string(one.status))) << one.head << answer;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos) << one.head;
    EXPECT_EQ(answer.find("hidden"), std::string::npos) << one.head;
  }
}

TEST_F(HttpServerTest, ABodyThatIsNearlyAllFrameIsRefused) {
  options_.max_body_bytes = 1 << 20;
  start_echo();
  const std::string head = "POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  const auto status = [&](const std::string& piece, int times, const std::string& end) {
    TestClient peer = client();
    peer.send(head);
    for (int i = 0; i < times; ++i) peer.send(piece);
    peer.send(end);
    return peer.read_all().substr(9, 3);
  };
  EXPECT_EQ(status("1\r\nx\r\n", 50'000, "0\r\n\r\n"), "200");  // byte by byte, as some clients write
  EXPECT_EQ(status("1;a=b\r\nx\r\n", 10, "0\r\nX: y\r\n\r\n"), "200");
  EXPECT_EQ(status("1;" + std::string(500, 'x') + "\r\nx\r\n", 1000, "0\r\n\r\n"), "400");
  EXPECT_EQ(status(std::string(500, '0') + "1\r\nx\r\n", 1000, "0\r\n\r\n"), "400");
  EXPECT_EQ(status(std::string(1000, '0'), 200, "1\r\nx\r\n0\r\n\r\n"), "400");
  EXPECT_EQ(status("", 0, "0\r\n" + std::string(200'000, 'X') + ": y\r\n\r\n"), "400");
}

// ---- Before the body ----

TEST_F(HttpServerTest, ARequestIsRefusedBeforeItsBodyIsSent) {
  std::atomic<int> served{0}, answers{0};
  options_.admit = [](const HttpRequest& head) -> HttpAdmission {
    if (head.path != "/no") return {};
    return {HttpResponse{.status = 401, .body = "no key"}};
  };
  options_.on_answer = [&](int) { ++answers; };
  start([&](std::shared_ptr<HttpExchange> exchange) {
    ++served;
    exchange->respond({.body = "served"});
  });
  TestClient large = client();
  large.send("POST /no HTTP/1.1\r\nHost: h\r\nContent-Length: 60000000\r\n\r\n");
  EXPECT_TRUE(large.read_until("no key").starts_with("HTTP/1.1 401 "));
  TestClient asking = client();
  asking.send("POST /no HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_TRUE(asking.read_until("no key").starts_with("HTTP/1.1 401 "));
  TestClient small = client();  // goes on behind it
  small.send("POST /no HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(small.read_until("no key").starts_with("HTTP/1.1 401 "));
  small.send("POST /yes HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(small.read_until("served").starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(served, 1);
  EXPECT_EQ(answers, 4);
}

TEST_F(HttpServerTest, ARequestSaysWhoSendsIt) {
  options_.unix_socket_path = testing::TempDir() + "http_server_peer.sock";
  start([](std::shared_ptr<HttpExchange> exchange) {
    const HttpRequest& request = exchange->request();
    exchange->respond(
        {.body = "[" + request.host + "|" + request.peer + "|" + std::to_string(request.connection) + "]"});
  });
  TestClient over_tcp = client();
  over_tcp.send("GET http://other:7/x HTTP/1.1\r\nHost: h:1\r\n\r\nGET / HTTP/1.1\r\nHost: h:1\r\n\r\n");
  EXPECT_TRUE(over_tcp.read_until("]").ends_with("[other:7|127.0.0.1|1]"));
  EXPECT_TRUE(over_tcp.read_until("]").ends_with("[h:1|127.0.0.1|1]"));
  TestClient over_unix(options_.unix_socket_path);
  over_unix.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(over_unix.read_until("]").ends_with("[h||2]"));
}

// ---- Memory ----

TEST_F(HttpServerTest, BodiesThatNeverEndLeaveMemoryForOthers) {
  options_.max_body_bytes = 4 << 20;
  options_.max_memory_bytes = 8 << 20;
  start_echo();
  const std::string half = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n" + std::string(2'000'000, 'x');
  std::vector<std::unique_ptr<TestClient>> parked;
  for (size_t i = 1; i <= 3; ++i) {
    parked.push_back(std::make_unique<TestClient>(server_->port()));
    parked.back()->send(half);
    while (server_->stats().memory_bytes < i * 2'000'000) std::this_thread::yield();
  }
  for (int i = 0; i < 20; ++i) {  // 2.4 MB are left: nobody may have more than half of them
    TestClient late = client();
    late.send(half);
    EXPECT_TRUE(late.read_until("\r\n").starts_with("HTTP/1.1 503 "));
  }
  EXPECT_LE(server_->stats().memory_bytes, options_.max_memory_bytes);
  TestClient honest = client();
  honest.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'y'));
  EXPECT_TRUE(honest.read_until("POST /x [] y").starts_with("HTTP/1.1 200 "));
  parked.clear();
  server_->stop_accepting();
  EXPECT_TRUE(server_->wait_until_closed(std::chrono::milliseconds(kPatienceMs)));
  EXPECT_EQ(server_->stats().memory_bytes, 0u);
}

TEST_F(HttpServerTest, AnswersThatNobodyReadsLeaveMemoryForOthers) {
  options_.max_memory_bytes = 64 << 20;
  start([](std::shared_ptr<HttpExchange> exchange) {
    exchange->respond({.body = std::string(exchange->request().path == "/big" ? kMoreThanASocketTakes : 1000, 'x')});
  });
  std::vector<std::unique_ptr<TestClient>> unread;
  std::string statuses;
  for (int i = 0; i < 4; ++i) {
    unread.push_back(std::make_unique<TestClient>(server_->port()));
    unread.back()->send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    statuses += unread.back()->read_until("\r\n").substr(9, 3) + " ";
  }
  EXPECT_EQ(statuses, "200 200 200 503 ");  // a third of 64 is left for the third, and less than that for the fourth
  TestClient honest = client();
  honest.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(honest.read_until("xxx").starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, AReaderThatTakesABitNowAndThenGetsAllOfAWholeAnswer) {
  options_.write_timeout = std::chrono::milliseconds(1000);
  start([](std::shared_ptr<HttpExchange> exchange) {
    exchange->respond({.body = std::string(kMoreThanASocketTakes, 'x')});
  });
  TestClient peer = client();
  peer.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  size_t size = 0;
  for (int i = 0; i < 15; ++i) {
    size += peer.read_bytes(kMoreThanASocketTakes / 20).size();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  size += peer.read_all().size();
  EXPECT_GT(size, kMoreThanASocketTakes);
}

// ---- What a handler may do ----

TEST_F(HttpServerTest, AnExceptionEndsItsRequestAndNoOther) {
  start([](std::shared_ptr<HttpExchange> exchange) {
    const std::string& path = exchange->request().path;
    if (path == "/memory") throw std::bad_alloc();
    if (path == "/handler") throw std::runtime_error("oh");
    if (path == "/post") return exchange->post([exchange] { throw std::runtime_error("oh"); });
    if (path == "/after")
      return exchange->after(std::chrono::milliseconds(1), [exchange] { throw std::runtime_error("oh"); });
    if (path == "/stream") exchange->begin_stream({.content_type = "text/plain", .body = "begun"});
    if (path == "/stream") throw std::runtime_error("oh");
    exchange->respond({.body = "fine"});
  });
  const auto answer = [this](const std::string& path) {
    TestClient peer = client();
    peer.send("GET " + path + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    return peer.read_all();
  };
  EXPECT_TRUE(answer("/memory").starts_with("HTTP/1.1 503 "));
  for (const char* path : {"/handler", "/post", "/after"}) {
    EXPECT_TRUE(answer(path).starts_with("HTTP/1.1 500 ")) << path;
  }
  const std::string stream = answer("/stream");
  EXPECT_NE(stream.find("begun"), std::string::npos);
  EXPECT_EQ(stream.find("\r\n0\r\n"), std::string::npos);  // cut, and it shows
  EXPECT_TRUE(answer("/").ends_with("fine"));
}

TEST_F(HttpServerTest, WhoeverWaitsForAnAnswerHearsOfItsException) {
  std::promise<void> told;
  start([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->on_closed([&told, exchange] { told.set_value(); });
    throw std::runtime_error("oh");
  });
  TestClient peer = client();
  peer.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(peer.read_all().starts_with("HTTP/1.1 500 "));
  EXPECT_EQ(told.get_future().wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
}

TEST_F(HttpServerTest, ALightRequestDoesNotWaitForWork) {
  options_.num_threads = 2;
  options_.admit = [](const HttpRequest& head) -> HttpAdmission {
    return {.refusal = {}, .is_light = head.path == "/light"};
  };
  std::promise<void> go_on;
  std::shared_future<void> may_go = go_on.get_future().share();
  start([may_go](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path == "/heavy") may_go.wait();
    exchange->respond({.body = "done"});
  });
  std::vector<std::unique_ptr<TestClient>> heavy;
  for (int i = 0; i < 20; ++i) {
    heavy.push_back(std::make_unique<TestClient>(server_->port()));
    heavy.back()->send("GET /heavy HTTP/1.1\r\nHost: h\r\n\r\n");
  }
  TestClient light = client();
  light.send("GET /light HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(light.read_until("done").find("200 OK"), std::string::npos);
  go_on.set_value();
  for (const auto& peer : heavy) EXPECT_NE(peer->read_until("done").find("200 OK"), std::string::npos);
}

// ---- Compressed bodies ----

std::string gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(ContentEncoding, BodiesAreDecompressed) {
  const std::string text = "hello" + std::string(200'000, 'x');
  EXPECT_EQ(*decode_body("", text, 1 << 20), text);
  EXPECT_EQ(*decode_body("identity", text, 1 << 20), text);
  EXPECT_EQ(*decode_body("gzip", gzip(text), 1 << 20), text);
  EXPECT_EQ(*decode_body("GZip", gzip("a") + gzip("b"), 1 << 20), "ab");
  EXPECT_EQ(*decode_body("zstd", zstd(text), 1 << 20), text);
  EXPECT_EQ(*decode_body("zstd", zstd("a") + zstd("b"), 1 << 20), "ab");
}

TEST(ContentEncoding, WhatIsCutDamagedTooLongOrUnknownIsNot) {
  const std::string text(100'000, 'x');
  for (const auto& [name, packed] : {std::pair("gzip", gzip(text)), std::pair("zstd", zstd(text))}) {
    for (size_t length = 0; length < packed.size(); ++length) {
      const auto cut = decode_body(name, packed.substr(0, length), 1 << 20);
      ASSERT_FALSE(cut.ok()) << name << " " << length;
      EXPECT_EQ(cut.error().code(), Code::kInvalidArgument) << name << " " << length;
    }
    EXPECT_EQ(decode_body(name, packed + "tail", 1 << 20).error().code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(decode_body(name, packed, text.size() - 1).error().code(), Code::kResourceExhausted) << name;
    EXPECT_TRUE(decode_body(name, packed, text.size()).ok()) << name;
  }
  EXPECT_EQ(decode_body("br", text, 1 << 20).error().code(), Code::kUnimplemented);
}

TEST(ContentEncoding, ABombDoesNotGoOff) {
  const std::string zeros(64 << 20, '\0');
  for (const auto& [name, packed] : {std::pair("gzip", gzip(zeros)), std::pair("zstd", zstd(zeros))}) {
    const auto decoded = decode_body(name, packed.substr(0, 4000), 64 << 20);
    ASSERT_FALSE(decoded.ok());
    EXPECT_NE(decoded.error().message().find("256 times"), std::string::npos) << decoded.error().message();
  }
}

TEST_F(HttpServerTest, ACompressedRequestReachesTheHandlerAsText) {
  options_.max_body_bytes = 1000;
  start([](std::shared_ptr<HttpExchange> exchange) { exchange->respond({.body = exchange->request().body}); });
  const auto post = [this](const std::string& encoding, const std::string& body) {
    TestClient peer = client();
    peer.send("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Encoding: " + encoding +
              "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return peer.read_all();
  };
  EXPECT_TRUE(post("gzip", gzip("hello")).ends_with("hello"));
  EXPECT_TRUE(post("zstd", zstd("hello")).ends_with("hello"));
  EXPECT_TRUE(post("gzip", "no gzip").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(post("gzip", gzip(std::string(5000, 'x'))).starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(post("br", "x").starts_with("HTTP/1.1 415"));
}

// ---- Other ways to listen ----

TEST_F(HttpServerTest, AUnixSocketIsServedAndTakenOverFromADeadServer) {
  options_.host = "";
  options_.unix_socket_path = testing::TempDir() + "http_server_test.sock";
  for (int round = 0; round < 2; ++round) {
    if (round == 0) {  // a file that nobody listens on
      unlink(options_.unix_socket_path.c_str());
      const int left = socket(AF_UNIX, SOCK_STREAM, 0);
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      options_.unix_socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
      ASSERT_EQ(bind(left, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
      close(left);
    }
    start([](std::shared_ptr<HttpExchange> exchange) { exchange->respond({.body = "over unix"}); });
    TestClient peer(options_.unix_socket_path);
    peer.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(peer.read_all().ends_with("over unix"));
    HttpServerOptions same = options_;
    const auto second = HttpServer::start(same, [](std::shared_ptr<HttpExchange>) {});
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code(), Code::kIo);
    server_.reset();
    EXPECT_NE(access(options_.unix_socket_path.c_str(), F_OK), 0);
  }
}

TEST_F(HttpServerTest, AFileWhereASocketShouldBeIsNotTouched) {
  options_.host = "";
  options_.unix_socket_path = testing::TempDir() + "http_server_file";
  std::ofstream(options_.unix_socket_path) << "dear";
  const auto server = HttpServer::start(options_, [](std::shared_ptr<HttpExchange>) {});
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.error().message().find("not a socket"), std::string::npos);
  std::string text;
  std::ifstream(options_.unix_socket_path) >> text;
  EXPECT_EQ(text, "dear");
  unlink(options_.unix_socket_path.c_str());
}

TEST_F(HttpServerTest, WhatCantBeListenedOnIsAnError) {
  const auto error_with = [](auto change) {
    HttpServerOptions options;
    change(options);
    const auto server = HttpServer::start(options, [](std::shared_ptr<HttpExchange>) {});
    return server.ok() ? std::string("serves") : server.error().message();
  };
  EXPECT_NE(error_with([](auto& options) { options.host = ""; }).find("neither a host nor"), std::string::npos);
  EXPECT_NE(error_with([](auto& options) { options.unix_socket_path = std::string(200, 'x'); }).find("at most 107"),
            std::string::npos);
  EXPECT_NE(error_with([](auto& options) { options.tls_certificate_path = "cert.pem"; }).find("expected both"),
            std::string::npos);
  EXPECT_NE(error_with([](auto& options) {
              options.tls_certificate_path = "/nowhere/cert.pem";
              options.tls_key_path = "/nowhere/key.pem";
            }).find("/nowhere/cert.pem"),
            std::string::npos);
}

TEST_F(HttpServerTest, StoppingLetsARunningAnswerEndAndClosesTheRest) {
  std::promise<std::shared_ptr<HttpExchange>> started;
  start([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->begin_stream({.status = 200, .content_type = "text/plain", .body = "begin ", .headers = {}});
    started.set_value(std::move(exchange));
  });
  TestClient idle = client();
  TestClient busy = client();
  busy.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  auto exchange = started.get_future().get();
  busy.read_until("begin ");
  server_->stop_accepting();
  EXPECT_EQ(idle.read_all(), "");
  exchange->post([exchange] {
    exchange->write("end");
    exchange->end();
  });
  exchange.reset();
  EXPECT_NE(busy.read_all().find("end"), std::string::npos);
  EXPECT_TRUE(server_->wait_until_closed(std::chrono::milliseconds(kPatienceMs)));
}

// An answer may go on without its client, as background responses do. What is posted to it runs, whether or not any
// socket is open; else a reader that waits for its end waits for ever.
TEST_F(HttpServerTest, APostRunsWhenNoSocketIsLeft) {
  for (int round = 0; round < 20; ++round) {
    std::promise<std::shared_ptr<HttpExchange>> begun;
    std::promise<void> gone;
    start([&](std::shared_ptr<HttpExchange> exchange) {
      exchange->on_closed([&gone] { gone.set_value(); });
      exchange->begin_stream({.content_type = "text/plain", .body = "begun"});
      begun.set_value(std::move(exchange));
    });
    TestClient peer = client();
    peer.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    auto exchange = begun.get_future().get();
    peer.close_now();
    gone.get_future().wait();
    server_->stop_accepting();
    while (TestClient::unconnected(AF_INET).try_to_connect(server_->port())) {  // the last socket is closed
    }
    std::promise<void> ran;
    exchange->post([&ran] { ran.set_value(); });
    exchange.reset();
    ASSERT_EQ(ran.get_future().wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
    EXPECT_TRUE(server_->wait_until_closed(std::chrono::milliseconds(kPatienceMs)));
  }
}

// Two listeners that both can't accept, for lack of file descriptors, both go on when there are some again.
TEST_F(HttpServerTest, BothListenersComeBackWhenDescriptorsDo) {
  options_.unix_socket_path = testing::TempDir() + "http_server_fds.sock";
  start_echo();
  const std::string request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
  TestClient over_tcp = TestClient::unconnected(AF_INET), over_unix = TestClient::unconnected(AF_UNIX);
  std::vector<int> taken;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {std::min<rlim_t>(before.rlim_cur, 200), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int fd; (fd = dup(STDERR_FILENO)) >= 0;) taken.push_back(fd);
  over_tcp.connect_to(server_->port());
  over_unix.connect_to(options_.unix_socket_path);
  over_tcp.send(request);
  over_unix.send(request);
  EXPECT_FALSE(over_tcp.has_input_within(std::chrono::milliseconds(250)));  // both have tried more than once
  for (const int fd : taken) close(fd);
  EXPECT_TRUE(over_tcp.read_all().ends_with("GET / [] "));
  EXPECT_TRUE(over_unix.read_all().ends_with("GET / [] "));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(HttpServerTest, ATakenPortIsAClearError) {
  start_echo();
  options_.port = server_->port();
  const Status checked = HttpServer::check(options_);
  const auto second = HttpServer::start(options_, [](std::shared_ptr<HttpExchange>) {});
  ASSERT_FALSE(second.ok());
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().message(), second.error().message());
  EXPECT_EQ(second.error().code(), Code::kIo);
  EXPECT_EQ(second.error().message(),
            "cannot listen on 127.0.0.1:" + std::to_string(options_.port) + ": Address already in use");
}

TEST_F(HttpServerTest, ACheckLeavesAFreePortFree) {
  start_echo();
  options_.port = server_->port();
  server_.reset();
  EXPECT_TRUE(HttpServer::check(options_).ok());
  EXPECT_TRUE(HttpServer::check(options_).ok());
  start_echo();
}

TEST_F(HttpServerTest, ASocketFileThatAServerAnswersIsNotFree) {
  options_.unix_socket_path = testing::TempDir() + "http_server_check.sock";
  EXPECT_TRUE(HttpServer::check(options_).ok());
  start_echo();
  HttpServerOptions second = options_;
  second.port = 0;
  ASSERT_FALSE(HttpServer::check(second).ok());
  EXPECT_NE(HttpServer::check(second).error().message().find("http_server_check.sock"), std::string::npos);
}

TEST_F(HttpServerTest, AHostWithoutAddressIsAClearError) {
  options_.host = "no host";
  const auto server = HttpServer::start(options_, [](std::shared_ptr<HttpExchange>) {});
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace deepinfer
