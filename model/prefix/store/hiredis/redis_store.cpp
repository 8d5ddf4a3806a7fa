// hiredis connects, writes commands and reads replies; the bytes are sent and received here, so that each step keeps the deadline
// and no reply takes more memory than a page.
#include "model/prefix/store/redis_store.h"
#include "base/error.h"
#include "base/printable.h"
#include <cerrno>
#include <cstring>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace tq {
namespace {

using Deadline = SharedStore::Clock::time_point;
using RedisReply = std::unique_ptr<redisReply, void (*)(void*)>;

constexpr size_t short_reply_bytes = 4096; // of a status or an error
constexpr size_t reply_rim_bytes = 64;     // around a value
#ifdef MSG_NOSIGNAL
constexpr int send_flags = MSG_NOSIGNAL;
#else
constexpr int send_flags = 0; // macOS: SO_NOSIGPIPE
#endif

// The other side has closed the connection: perhaps only because it was idle for long.
struct ConnectionBroke : Error {
    using Error::Error;
};

std::string system_text(int error) { return std::strerror(error); }

// The connection is non-blocking, and each wait is bounded by the caller's deadline. A reply's size is limited while it arrives:
// hiredis itself would take memory for whatever length or count the other side claims. For that the first byte is looked at, as
// only replies of four kinds are expected, and none of them is an array.
class RedisConnection {
  public:
    RedisConnection(const RedisAddress& address, Deadline deadline)
        : context_(redisConnectNonBlock(address.host.c_str(), address.port), redisFree) {
        if (!context_) fail("no memory for a connection to Redis");
        if (context_->err) fail("cannot connect: {}", printable(context_->errstr, 200));
        wait(POLLOUT, deadline, "connect");
        int error = 0;
        socklen_t size = sizeof error;
        if (getsockopt(context_->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
        if (error != 0) fail("cannot connect: {}", system_text(error));
        const int yes = 1;
        setsockopt(context_->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
#ifdef SO_NOSIGPIPE
        setsockopt(context_->fd, SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
#endif
        const std::string database = std::to_string(address.database);
        if (!address.user.empty())
            ask({"AUTH", address.user, address.password}, deadline);
        else if (!address.password.empty())
            ask({"AUTH", address.password}, deadline);
        if (address.database != 0) ask({"SELECT", database}, deadline);
    }

    void send(std::initializer_list<std::string_view> words, Deadline deadline) {
        std::vector<const char*> texts;
        std::vector<size_t> sizes;
        for (const std::string_view word : words) {
            texts.push_back(word.data());
            sizes.push_back(word.size());
        }
        char* command = nullptr;
        const int size = redisFormatCommandArgv(&command, int(texts.size()), texts.data(), sizes.data());
        const std::unique_ptr<char, void (*)(void*)> owned(command, [](void* p) { redisFreeCommand(static_cast<char*>(p)); });
        if (size < 0) fail("no memory for a command to Redis");
        for (size_t sent = 0; sent < size_t(size);) {
            const ssize_t n = ::send(context_->fd, command + sent, size_t(size) - sent, send_flags);
            if (n > 0)
                sent += size_t(n);
            else if (errno == EAGAIN || errno == EWOULDBLOCK)
                wait(POLLOUT, deadline, "take a command");
            else if (errno != EINTR)
                throw ConnectionBroke(fmt::format("the connection broke: {}", system_text(errno)));
        }
    }

    // Returns the next reply, of at most `max` bytes. An error is thrown with the text of Redis.
    RedisReply receive(size_t max, Deadline deadline) {
        redisReader& reader = *context_->reader;
        for (bool is_new = true;;) {
            if (is_new && reader.pos < reader.len) { // hiredis would take memory for as many elements as an array claims to have
                if (!std::strchr("$+-:", reader.buf[reader.pos])) fail("Redis replies what was not asked for");
                is_new = false;
            }
            void* reply = nullptr;
            if (redisReaderGetReply(&reader, &reply) != REDIS_OK)
                fail("Redis replies wrongly: {}", printable(reader.errstr, 200));
            if (reply) return checked(RedisReply(static_cast<redisReply*>(reply), freeReplyObject));
            if (reader.len - reader.pos > max + reply_rim_bytes) fail("Redis has more than the {} bytes of a page", max);
            feed(reader, deadline);
        }
    }
    RedisReply ask(std::initializer_list<std::string_view> words, Deadline deadline) {
        send(words, deadline);
        return receive(short_reply_bytes, deadline);
    }

  private:
    static RedisReply checked(RedisReply reply) {
        if (reply->type == REDIS_REPLY_ERROR) fail("Redis says: {}", printable({reply->str, reply->len}, 200));
        return reply;
    }
    void feed(redisReader& reader, Deadline deadline) {
        char bytes[1 << 16];
        wait(POLLIN, deadline, "reply");
        const ssize_t n = ::recv(context_->fd, bytes, sizeof bytes, 0);
        if (n == 0) throw ConnectionBroke("Redis has closed the connection");
        if (n > 0 && redisReaderFeed(&reader, bytes, size_t(n)) != REDIS_OK) fail("no memory for a reply of Redis");
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            throw ConnectionBroke(fmt::format("the connection broke: {}", system_text(errno)));
    }
    void wait(short events, Deadline deadline, const char* what) {
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SharedStore::Clock::now()).count();
            if (left <= 0) fail("Redis did not {} in time", what);
            pollfd one{context_->fd, events, 0};
            const int ready = poll(&one, 1, int(std::min<int64_t>(left, 1000)));
            if (ready > 0) return; // an error is found by what follows
            if (ready < 0 && errno != EINTR) fail("cannot wait for Redis: {}", system_text(errno));
        }
    }

    const std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
};

class RedisStore final : public SharedStore {
  public:
    RedisStore(const RedisAddress& address, PageName owner, std::chrono::seconds ttl)
        : address_(address), owner_(owner), ttl_(std::to_string(ttl.count())), expires_(ttl.count() > 0) {}

    // GET and EXPIRE are sent together and answered in order, so a read costs one round trip.
    std::optional<std::vector<std::byte>> get(const PageEntry& page, size_t max_bytes, Deadline deadline) override {
        const std::string key = key_of(page);
        std::optional<std::vector<std::byte>> bytes;
        run(deadline, [&](RedisConnection& redis) {
            redis.send({"GET", key}, deadline);
            if (expires_) redis.send({"EXPIRE", key, ttl_}, deadline);
            const RedisReply value = redis.receive(max_bytes, deadline);
            if (expires_) redis.receive(short_reply_bytes, deadline);
            if (value->type == REDIS_REPLY_NIL) return;
            if (value->type != REDIS_REPLY_STRING) fail("Redis replies what was not asked for");
            if (value->len > max_bytes) fail("Redis has more than the {} bytes of a page", max_bytes);
            const auto all = std::as_bytes(std::span(value->str, value->len));
            bytes.emplace(all.begin(), all.end());
        });
        return bytes;
    }

    // A page that is there already only has its time renewed: a page's name says what it was computed from, so that it is the
    // same page, and sending it again would cost its bytes.
    bool put(const PageEntry& page, std::span<const std::byte> bytes, bool replace, Deadline deadline) override {
        const std::string key = key_of(page);
        const std::string_view value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        bool written = false;
        run(deadline, [&](RedisConnection& redis) {
            if (!replace) {
                const RedisReply there =
                    expires_ ? redis.ask({"EXPIRE", key, ttl_}, deadline) : redis.ask({"EXISTS", key}, deadline);
                if (there->type == REDIS_REPLY_INTEGER && there->integer == 1) return;
            }
            if (expires_)
                redis.ask({"SET", key, value, "EX", ttl_}, deadline);
            else
                redis.ask({"SET", key, value}, deadline);
            written = true;
        });
        return written;
    }

    void probe(Deadline deadline) override {
        run(deadline, [&](RedisConnection& redis) { redis.ask({"PING"}, deadline); });
    }
    uint64_t connections() const override { return connections_; }

  private:
    std::string key_of(const PageEntry& page) const { return fmt::format("tqrun:page:{}:{}", owner_.hex(), page.name.hex()); }

    // After an error the connection is given up: a reply may still be on its way. One that was open before is replaced first.
    template <class Use> void run(Deadline deadline, const Use& use) {
        const bool was_open = connection_ != nullptr;
        try {
            if (!connection_) {
                connection_ = std::make_unique<RedisConnection>(address_, deadline);
                connections_++;
            }
            return use(*connection_);
        } catch (const ConnectionBroke&) {
            connection_.reset();
            if (!was_open) throw;
        } catch (...) {
            connection_.reset();
            throw;
        }
        run(deadline, use);
    }

    const RedisAddress address_;
    const PageName owner_;
    const std::string ttl_; // seconds
    const bool expires_;
    std::unique_ptr<RedisConnection> connection_;
    uint64_t connections_ = 0;
};

} // namespace

void require_redis() {}

std::unique_ptr<SharedStore> open_redis_store(const RedisAddress& address, PageName owner, std::chrono::seconds ttl) {
    return std::make_unique<RedisStore>(address, owner, ttl);
}

} // namespace tq
