// A socket to a server, with TLS or without, for coroutines (private to the room).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl.hpp>
#include <memory>

#include "net/endpoint.h"

namespace deepinfer {

class ClientSocket {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Addresses = boost::asio::ip::tcp::resolver::results_type;

  bool open() const { return plain_ != nullptr || tls_ != nullptr; }
  void close() {
    plain_.reset();
    tls_.reset();
  }

  // Every wait of the socket ends then, with beast::error::timeout.
  void expires_at(TimePoint deadline) {
    if (tls_ != nullptr) boost::beast::get_lowest_layer(*tls_).expires_at(deadline);
    if (plain_ != nullptr) plain_->expires_at(deadline);
  }

  // Throws boost::system::system_error.
  boost::asio::awaitable<void> connect(boost::asio::io_context& io, boost::asio::ssl::context& context,
                                       const Endpoint& endpoint, const Addresses& addresses, TimePoint deadline) {
    namespace asio = boost::asio;
    if (!endpoint.tls) {
      plain_ = std::make_unique<boost::beast::tcp_stream>(io);
      plain_->expires_at(deadline);
      co_await plain_->async_connect(addresses, asio::use_awaitable);
      plain_->socket().set_option(asio::ip::tcp::no_delay(true));
      co_return;
    }
    tls_ = std::make_unique<Tls>(io, context);
    SSL_set_tlsext_host_name(tls_->native_handle(), endpoint.host.c_str());
    tls_->set_verify_callback(asio::ssl::host_name_verification(endpoint.host));
    boost::beast::get_lowest_layer(*tls_).expires_at(deadline);
    co_await boost::beast::get_lowest_layer(*tls_).async_connect(addresses, asio::use_awaitable);
    co_await tls_->async_handshake(asio::ssl::stream_base::client, asio::use_awaitable);
  }

  // use(stream) of the stream that is open.
  template <typename Use>
  boost::asio::awaitable<void> with(Use use) {
    if (tls_ != nullptr) {
      co_await use(*tls_);
    } else {
      co_await use(*plain_);
    }
  }

 private:
  using Tls = boost::beast::ssl_stream<boost::beast::tcp_stream>;
  std::unique_ptr<boost::beast::tcp_stream> plain_;
  std::unique_ptr<Tls> tls_;
};

// Checks servers against the certificates that the machine trusts.
inline boost::asio::ssl::context client_tls() {
  boost::asio::ssl::context context(boost::asio::ssl::context::tls_client);
  context.set_default_verify_paths();
  context.set_verify_mode(boost::asio::ssl::verify_peer);
  return context;
}

}  // namespace deepinfer
