// Waiting for a message neither blocks other threads' calls of MPI nor keeps a core busy for long: MPI's own waits spin.
#include "model/stages/ranks/mpi_transport.h"
#include <algorithm>
#include <chrono>
#include <limits>
#include <mpi.h>
#include <mutex>
#include <thread>

namespace tq {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int message_tag = 1;

// Longer and longer pauses: a hop of a token is short, and between requests a rank may wait for hours.
// MPI_Wait and MPI_Recv of the common implementations spin on a core until the message is there. A rank that waits would then
// take a core from the threads of the CPU path on the same machine. So messages are started with the calls that do not block, and
// asked for with MPI_Test and MPI_Iprobe between pauses.
class Pause {
  public:
    void wait() {
        using namespace std::chrono_literals;
        const auto waited = Clock::now() - began_;
        if (waited < 100us)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(waited < 1s ? 30us : waited < 10s ? 500us : 5000us);
    }

  private:
    const Clock::time_point began_ = Clock::now();
};

class MpiTransport final : public Transport {
  public:
    // Calls come from several threads, but never two at once (mutex_): that is MPI_THREAD_SERIALIZED, which more builds have than
    // MPI_THREAD_MULTIPLE. Errors are returned instead of ending the job, so that RankLost can name the rank.
    MpiTransport() {
        int provided = 0;
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        char name[MPI_MAX_PROCESSOR_NAME] = {};
        int length = 0;
        MPI_Get_processor_name(name, &length);
        host_.assign(name, size_t(length));
        if (provided < MPI_THREAD_SERIALIZED) {
            MPI_Finalize();
            fail("this MPI ({}) allows calls from one thread only: it must be one that was built with threads", mpi_version());
        }
    }
    ~MpiTransport() override { MPI_Finalize(); }

    uint32_t rank() const override { return uint32_t(rank_); }
    uint32_t size() const override { return uint32_t(size_); }
    std::string host() const override { return host_; }
    void send(uint32_t to, std::span<const std::byte> message) override;
    std::vector<std::byte> receive(uint32_t from) override;

  private:
    void check(int status, uint32_t other) const;
    void finish(MPI_Request& request, uint32_t other);

    int rank_ = 0, size_ = 1;
    std::string host_;
    std::mutex mutex_; // of all calls of MPI
};

void MpiTransport::check(int status, uint32_t other) const {
    if (status == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(status, text, &length);
    throw RankLost(fmt::format("rank {} cannot be reached: {}", other, std::string(text, size_t(length))));
}

// The lock is held for one call of MPI at a time, not while pausing: another thread may send in between, and the other rank may
// need that message to answer this one.
void MpiTransport::finish(MPI_Request& request, uint32_t other) {
    for (Pause pause;; pause.wait()) {
        const std::lock_guard lock(mutex_);
        int done = 0;
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), other);
        if (done) return;
    }
}

void MpiTransport::send(uint32_t to, std::span<const std::byte> message) {
    if (message.size() > size_t(std::numeric_limits<int>::max()))
        fail("a message of {} bytes is too long for MPI: use a smaller batch (-b)", message.size());
    MPI_Request request;
    {
        const std::lock_guard lock(mutex_);
        check(MPI_Isend(message.data(), int(message.size()), MPI_BYTE, int(to), message_tag, MPI_COMM_WORLD, &request), to);
    }
    finish(request, to);
}

// The size of a message is not known before it is there. MPI_Iprobe gives it. Nobody else receives from this rank between the
// probe and MPI_Irecv, because both happen under the lock and there is one reader for each rank.
std::vector<std::byte> MpiTransport::receive(uint32_t from) {
    std::vector<std::byte> message;
    MPI_Request request;
    for (Pause pause;; pause.wait()) {
        const std::lock_guard lock(mutex_);
        int arrived = 0, size = 0;
        MPI_Status status;
        check(MPI_Iprobe(int(from), message_tag, MPI_COMM_WORLD, &arrived, &status), from);
        if (!arrived) continue;
        MPI_Get_count(&status, MPI_BYTE, &size);
        message.resize(size_t(size));
        check(MPI_Irecv(message.data(), size, MPI_BYTE, int(from), message_tag, MPI_COMM_WORLD, &request), from);
        break;
    }
    finish(request, from);
    return message;
}

} // namespace

std::string mpi_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string first(text, size_t(length)); // MPICH's goes on with how it was configured
    first.erase(std::min(first.find_first_of(",\n"), first.size()));
    std::ranges::replace(first, '\t', ' ');
    return first;
}

std::unique_ptr<Transport> open_mpi() { return std::make_unique<MpiTransport>(); }

} // namespace tq
