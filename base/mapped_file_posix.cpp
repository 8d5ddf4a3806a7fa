// mmap for Linux, Android, macOS and the BSDs, and SIGBUS, which is raised if a mapped page no longer has file content.
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "base/printable.h"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tq {

// A mapping. Regions form a list that a signal handler may walk at any time: a region is never freed, only reused.
// The handler runs on whichever thread reads a lost page, at any time, even while another thread adds a region. So what it reads
// is atomic, and a region is published last (first) and never freed. A region that is reused gets its begin before its size;
// while it has no size no address is in it.
struct MappedFile::Region {
    std::atomic<uintptr_t> begin = 0;
    std::atomic<size_t> size = 0; // 0: unused
    std::string path;             // not read by the handler
    Region* next = nullptr;
    bool taken = false;

    static Region* add(std::span<const std::byte> bytes, std::string path);
    static void remove(Region* region);
    static void on_lost_page(int signal, siginfo_t* info, void*);
    static void install_handler();

    static inline std::mutex changing;
    static inline std::atomic<Region*> first = nullptr;
    static inline std::atomic<const Region*> lost = nullptr; // the first that lost a page; then never changed
    static inline uintptr_t page_bytes = 0;
    static inline struct sigaction previous = {};
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<size_t>::is_always_lock_free &&
              std::atomic<void*>::is_always_lock_free);

// Runs on the thread that read the page, which continues with zeros. Async-signal-safe calls only; mmap is a system call.
void MappedFile::Region::on_lost_page(int signal, siginfo_t* info, void*) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Region* r = first; r && info->si_code > 0; r = r->next) {
        const uintptr_t begin = r->begin, size = r->size;
        if (address - begin >= size) continue;
        const Region* none = nullptr;
        lost.compare_exchange_strong(none, r);
        const int error = errno;
        const uintptr_t page = address / page_bytes * page_bytes; // everything after a lost page is lost, too
        void* const zeros =
            ::mmap(reinterpret_cast<void*>(page), begin + size - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        errno = error;
        if (zeros != MAP_FAILED) return;
        break;
    }
    ::sigaction(SIGBUS, &previous, nullptr); // not ours: raised again for the previous handler
    if (info->si_code <= 0) ::raise(signal);
}

void MappedFile::Region::install_handler() {
    page_bytes = uintptr_t(::sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_lost_page;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous);
}

MappedFile::Region* MappedFile::Region::add(std::span<const std::byte> bytes, std::string path) {
    const std::lock_guard lock(changing);
    static const bool installed = (install_handler(), true);
    (void)installed;
    Region* region = first;
    while (region && region->taken) region = region->next;
    if (!region) {
        region = new Region;
        region->next = first;
        first = region;
    }
    region->taken = true;
    region->path = std::move(path);
    region->begin = reinterpret_cast<uintptr_t>(bytes.data());
    region->size = bytes.size();
    return region;
}

void MappedFile::Region::remove(Region* region) {
    const std::lock_guard lock(changing);
    region->begin = 0;          // an address at which nothing is mapped
    if (region == lost) return; // its path and size are still needed
    region->size = 0;
    region->taken = false;
}

namespace {

FileIdentity identity_of(const struct stat& status) {
#ifdef __APPLE__
    const timespec& modified = status.st_mtimespec;
#else
    const timespec& modified = status.st_mtim;
#endif
    return {uint64_t(status.st_dev), uint64_t(status.st_ino), uint64_t(status.st_size),
            int64_t(modified.tv_sec) * 1'000'000'000 + modified.tv_nsec};
}

struct Descriptor {
    int fd;
    explicit Descriptor(int fd) : fd(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd >= 0) ::close(fd);
    }
};

} // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a named pipe must not wait for a writer.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.fd < 0) fail("cannot open {}: {}", utf8_text(path), std::strerror(errno));
    struct stat status {};
    if (::fstat(file.fd, &status) != 0) fail("cannot read the size of {}: {}", utf8_text(path), std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail("{} is a directory, not a file", utf8_text(path));
    if (!S_ISREG(status.st_mode)) fail("{} is not a regular file, so it cannot be mapped into memory", utf8_text(path));
    if (status.st_size == 0) fail("{} is empty", utf8_text(path));
    if (!std::in_range<size_t>(status.st_size)) {
        fail("{} has {} bytes, more than this machine can address", utf8_text(path), status.st_size);
    }
    const auto size = size_t(status.st_size);
    void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (address == MAP_FAILED) fail("cannot map the {} bytes of {}: {}", size, utf8_text(path), std::strerror(errno));
    bytes_ = {static_cast<const std::byte*>(address), size};
    identity_ = identity_of(status);
    region_ = Region::add(bytes_, utf8_text(path));
}

MappedFile::~MappedFile() {
    if (bytes_.empty()) return;
    Region::remove(region_);
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), identity_(other.identity_), region_(std::exchange(other.region_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(identity_, other.identity_);
    std::swap(region_, other.region_);
    return *this;
}

std::optional<std::string> MappedFile::lost_file() {
    const Region* const region = Region::lost;
    if (!region) return std::nullopt;
    struct stat status {};
    if (::stat(region->path.c_str(), &status) == 0 && uint64_t(status.st_size) < region->size)
        return fmt::format(
            "{} was cut off while it was in use: {} of its {} bytes are left. Get it again; to put another file in "
            "the place of one in use, rename it over that",
            printable(region->path, 300), status.st_size, region->size.load());
    return fmt::format("{} could no longer be read while it was in use: was it written over, or its disk or network taken away? "
                       "Get it again, or start again",
                       printable(region->path, 300));
}

std::optional<std::string> lost_mapped_file() { return MappedFile::lost_file(); }

void read_ahead(std::span<const std::byte> bytes) {
    static const uintptr_t page_bytes = uintptr_t(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uintptr_t>(bytes.data()), begin = first / page_bytes * page_bytes;
    ::posix_madvise(reinterpret_cast<void*>(begin), first - begin + bytes.size(), POSIX_MADV_WILLNEED);
}

void check_mapped_files() {
    if (const auto lost = lost_mapped_file()) throw Error(*lost);
}

} // namespace tq
