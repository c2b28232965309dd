// For tests of this room and of gateway: a client that speaks bytes over a loopback socket.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace deepinfer {

inline constexpr int kPatienceMs = 20'000;  // for what must come; never waited for in full when all is well

class TestClient {
 public:
  explicit TestClient(uint16_t port) : TestClient(AF_INET, 0) { connect_to(port); }
  explicit TestClient(const std::string& unix_socket_path) : TestClient(AF_UNIX, 0) { connect_to(unix_socket_path); }
  // A socket that connect_to() takes; of AF_INET or AF_UNIX.
  static TestClient unconnected(int family) { return TestClient(family, 0); }

  void connect_to(uint16_t port) { EXPECT_TRUE(try_to_connect(port)); }
  bool try_to_connect(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  void connect_to(const std::string& unix_socket_path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    unix_socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~TestClient() { close_now(); }
  TestClient(const TestClient&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // Reads until `mark` has come; what came, with the mark at the end or short of it when the peer closed.
  std::string read_until(std::string_view mark) {
    while (received_.find(mark) == std::string::npos && receive()) {
    }
    const size_t at = received_.find(mark);
    const size_t end = at == std::string::npos ? received_.size() : at + mark.size();
    std::string text = received_.substr(0, end);
    received_.erase(0, end);
    return text;
  }
  std::string read_bytes(size_t size) {
    while (received_.size() < size && receive()) {
    }
    std::string text = received_.substr(0, size);
    received_.erase(0, size);
    return text;
  }
  std::string read_all() {
    while (receive()) {
    }
    return std::exchange(received_, "");
  }
  bool has_input_within(std::chrono::milliseconds time) const {
    pollfd waiting = {fd_, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(time.count())) > 0;
  }
  void stop_sending() { shutdown(fd_, SHUT_WR); }
  void close_now() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  TestClient(int family, int protocol) : fd_(socket(family, SOCK_STREAM, protocol)) {}

  bool receive() {
    pollfd waiting = {fd_, POLLIN, 0};
    if (poll(&waiting, 1, kPatienceMs) <= 0) return false;
    char bytes[4096];
    const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
    if (size <= 0) return false;
    received_.append(bytes, static_cast<size_t>(size));
    return true;
  }

  int fd_;
  std::string received_;
};

}  // namespace deepinfer
