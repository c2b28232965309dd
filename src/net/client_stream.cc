#include "net/client_stream.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>

#include "net/client_socket.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class AsioStream final : public ClientStream {
 public:
  explicit AsioStream(const Endpoint& endpoint) : endpoint_(endpoint) {}

  Status open(TimePoint deadline) {
    error_code failure;
    const auto addresses = asio::ip::tcp::resolver(io_).resolve(endpoint_.host, endpoint_.port, failure);
    if (failure) return to_status(failure);
    return run([&]() -> asio::awaitable<void> {
      co_await socket_.connect(io_, tls_, endpoint_, addresses, deadline);
    });
  }

  Status write(std::span<const std::byte> bytes, TimePoint deadline) override {
    socket_.expires_at(deadline);
    return run([&]() -> asio::awaitable<void> {
      co_await socket_.with([&](auto& stream) -> asio::awaitable<void> {
        co_await asio::async_write(stream, asio::buffer(bytes.data(), bytes.size()), asio::use_awaitable);
      });
    });
  }

  Result<size_t> read(std::span<std::byte> out, TimePoint deadline) override {
    socket_.expires_at(deadline);
    size_t count = 0;
    RETURN_IF_ERROR(run([&]() -> asio::awaitable<void> {
      co_await socket_.with([&](auto& stream) -> asio::awaitable<void> {
        count = co_await stream.async_read_some(asio::buffer(out.data(), out.size()), asio::use_awaitable);
      });
    }));
    return count;
  }

 private:
  Status to_status(const error_code& failure) const {
    const Code code = failure == boost::beast::error::timeout ? Code::kDeadlineExceeded : Code::kUnavailable;
    return Error(code, "{}:{}: {}", endpoint_.host, endpoint_.port, failure.message());
  }

  template <typename Work>
  Status run(Work work) {
    error_code failure;
    io_.restart();
    asio::co_spawn(
        io_,
        [&]() -> asio::awaitable<void> {
          try {
            co_await work();
          } catch (const boost::system::system_error& error) {
            failure = error.code();
          }
        },
        asio::detached);
    io_.run();
    return failure ? to_status(failure) : Status();
  }

  const Endpoint endpoint_;
  asio::io_context io_{1};
  asio::ssl::context tls_ = client_tls();
  ClientSocket socket_;
};

}  // namespace

Result<std::unique_ptr<ClientStream>> ClientStream::connect(const Endpoint& endpoint, TimePoint deadline) {
  auto stream = std::make_unique<AsioStream>(endpoint);
  RETURN_IF_ERROR(stream->open(deadline));
  return std::unique_ptr<ClientStream>(std::move(stream));
}

}  // namespace deepinfer
