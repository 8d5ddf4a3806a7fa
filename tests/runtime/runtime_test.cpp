// Devices, memory, uploads and the pipeline cache.
#include "base/error.h"
#include "runtime/device_impl.h"
#include "runtime/memory.h"
#include "runtime/pipeline_cache.h"
#include "runtime/recorder.h"
#include "runtime/uploader.h"
#include "test_shaders.gen.h"
#include "tests/support/skip.h"
#include "tests/support/text.h"
#include <cstring>
#include <doctest/doctest.h>
#include <fstream>
#include <random>
using namespace tq;
using tq::test::contains;

namespace {

constexpr uint64_t mib = uint64_t(1) << 20;

std::string error_of(auto&& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

uint64_t mapped_sum(const Buffer& buffer) {
    uint64_t sum = 0;
    for (const std::byte byte : buffer.host()) sum = sum * 31 + uint64_t(byte);
    return sum;
}

// The contents of `buffer`, copied back.
Buffer read_back(Device& device, const Buffer& buffer) {
    Buffer copy = device.allocate("copy", buffer.bytes(), Memory::readback);
    Recorder recorder(device);
    recorder.copy(copy, buffer);
    recorder.finish().run();
    return copy;
}

} // namespace

TEST_CASE("devices are listed and can be chosen by index and by part of the name") {
    const std::vector<Capabilities> all = list_devices();
    REQUIRE(!all.empty());
    for (const Capabilities& device : all) {
        CAPTURE(device.name);
        if (!device.unusable.empty()) continue;
        CHECK(device.memory_bytes > 0);
        CHECK(device.storage_range_bytes >= 128 * mib);
        CHECK(device.storage_range_bytes < (uint64_t(1) << 31));
        CHECK(device.storage_range_bytes % 16 == 0);
        CHECK(device.storage_alignment <= 256);
        CHECK(device.storage_alignment % 16 == 0);
        CHECK(device.max_workgroup_invocations >= 128);
        CHECK(device.min_subgroup_size <= device.subgroup_size);
        CHECK(device.subgroup_size <= device.max_subgroup_size);
    }
    const Device best;
    std::string name = best.capabilities().name.substr(1, 6);
    for (char& c : name) c = char(std::toupper(static_cast<unsigned char>(c)));
    CHECK(contains(best.capabilities().name, Device(name).capabilities().name.substr(1, 6)));
    CHECK(Device("0").capabilities().name == all[0].name);
}

TEST_CASE("a device that is not there is an error that lists those that are") {
    for (const char* selector : {"no such device", "999", "123456789012345678901234567890", "-1"}) {
        const std::string error = error_of([&] { Device{selector}; });
        CHECK(contains(error, selector));
        CHECK(contains(error, list_devices()[0].name));
    }
}

TEST_CASE("a free list gives each byte once and merges what comes back") {
    FreeList list(1000);
    CHECK(list.take(1001, 1) == std::nullopt);
    std::mt19937 random(1);
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    std::vector<char> used(1000);
    for (int step = 0; step < 20000; step++) {
        if (random() % 2) {
            const uint64_t bytes = 1 + random() % 100, alignment = uint64_t(1) << random() % 7;
            const auto offset = list.take(bytes, alignment);
            if (!offset) continue;
            REQUIRE(*offset % alignment == 0);
            REQUIRE(*offset + bytes <= 1000);
            for (uint64_t i = 0; i < bytes; i++) REQUIRE(!std::exchange(used[*offset + i], 1));
            taken.emplace_back(*offset, bytes);
        } else if (!taken.empty()) {
            std::swap(taken[random() % taken.size()], taken.back());
            const auto [offset, bytes] = taken.back();
            taken.pop_back();
            std::memset(&used[offset], 0, bytes);
            list.give_back(offset, bytes);
        }
        REQUIRE(list.all_free() == taken.empty());
    }
    for (const auto& [offset, bytes] : taken) list.give_back(offset, bytes);
    CHECK(list.take(1000, 1) == 0);
}

TEST_CASE("memory types: staging on a discrete GPU, directly where all of its memory is visible") {
    constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                                    visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    struct Type {
        VkMemoryPropertyFlags flags;
        uint32_t heap;
    };
    auto choose = [](std::vector<uint64_t> heaps, std::vector<Type> types, uint32_t allowed = ~0u) {
        VkPhysicalDeviceMemoryProperties all{};
        for (const uint64_t bytes : heaps) { // the first is the host's, if there are several
            const bool own = all.memoryHeapCount > 0 || heaps.size() == 1;
            all.memoryHeaps[all.memoryHeapCount++] = {bytes, VkMemoryHeapFlags(own ? VK_MEMORY_HEAP_DEVICE_LOCAL_BIT : 0)};
        }
        for (const Type& type : types) all.memoryTypes[all.memoryTypeCount++] = {type.flags, type.heap};
        return std::array{choose_memory_type(all, allowed, Memory::device).value(),
                          choose_memory_type(all, allowed, Memory::upload).value(),
                          choose_memory_type(all, allowed, Memory::readback).value()};
    };
    using Choice = std::array<uint32_t, 3>;
    const uint64_t gib = 1024 * mib;
    // a window of 256 MB into 8 GB
    CHECK(choose({16 * gib, 8 * gib, 256 * mib}, {{local, 1}, {visible, 0}, {local | visible, 2}, {visible | cached, 0}}) ==
          Choice{0, 1, 3});
    // a window over all of it
    CHECK(choose({16 * gib, 8 * gib}, {{local, 1}, {visible, 0}, {local | visible, 1}, {visible | cached, 0}}) ==
          Choice{2, 1, 3});
    // unified memory, one type for all; and with a cached one
    CHECK(choose({16 * gib}, {{local | visible | cached, 0}}) == Choice{0, 0, 0});
    CHECK(choose({16 * gib}, {{local, 0}, {local | visible, 0}, {local | visible | cached, 0}}) == Choice{1, 1, 2});
    // types that the buffers cannot use, or that need a feature
    CHECK(choose({16 * gib, 8 * gib}, {{local, 1}, {local, 1}, {visible, 0}}, 0b110) == Choice{1, 2, 2});
    CHECK(choose({16 * gib, 8 * gib}, {{local | VK_MEMORY_PROPERTY_PROTECTED_BIT, 1}, {local, 1}, {visible, 0}}) ==
          Choice{1, 2, 2});
}

TEST_CASE("buffers do not overlap, and memory is used again") {
    Device device;
    std::mt19937 random(2);
    std::vector<Buffer> buffers;
    for (int i = 0; i < 200; i++) {
        buffers.push_back(device.allocate("many", 1 + random() % (i % 10 == 0 ? 4 * mib : 5000), Memory::upload));
        std::memset(buffers.back().host().data(), i, buffers.back().host().size());
        if (i % 3 == 0) buffers.erase(buffers.begin() + long(random() % buffers.size()));
    }
    for (const Buffer& buffer : buffers)
        for (const std::byte byte : buffer.host()) REQUIRE(byte == buffer.host()[0]);

    const uint64_t before = device.allocated_bytes();
    for (int i = 0; i < 100; i++) Buffer freed = device.allocate("freed", 20 * mib);
    CHECK(device.allocated_bytes() == before);
}

TEST_CASE("a buffer of its own goes back at once, until there are too many") {
    Device device;
    const Buffer shared = device.allocate("shared", 4096);
    const uint64_t before = device.allocated_bytes();
    {
        std::vector<Buffer> own;
        for (int i = 0; i < 20; i++) own.push_back(device.allocate("own", 65536, Memory::device, Placement::own));
        const uint64_t bytes = device.allocated_bytes() - before;
        CHECK(bytes >= 20 * 65536);
        for (int i = 0; i < 10; i++) own.pop_back();
        CHECK(device.allocated_bytes() - before == bytes / 2);
    }
    CHECK(device.allocated_bytes() == before);
    device.impl().capabilities.allocation_count = 2 * uint32_t(device.impl().allocations());
    const Buffer among_others = device.allocate("own", 65536, Memory::device, Placement::own);
    CHECK(device.allocated_bytes() == before);
}

TEST_CASE("a limit on memory holds for all buffers, and may be lifted") {
    Device device;
    const Buffer first = device.allocate("first", 100000);
    const uint64_t before = device.allocated_bytes();
    device.memory_limit_bytes = before + mib;
    CHECK(device.available_bytes() == mib);
    const std::string error = error_of([&] { (void)device.allocate("large", 40 * mib); });
    CHECK(contains(error, fmt::format("no room for large (40.0 MiB): {:.1f} of the {:.1f} MiB", double(before) / mib,
                                      double(before) / mib + 1)));
    const Buffer second = device.allocate("small", mib / 2, Memory::device, Placement::own);
    CHECK(device.available_bytes() <= mib / 2);
    CHECK_THROWS_AS((void)device.allocate("too much", mib, Memory::device, Placement::own), OutOfMemory);
    const Buffer staging = device.allocate("staging", 4 * mib, Memory::upload); // host memory
    device.memory_limit_bytes = 1;                                              // existing allocations stay
    CHECK(device.available_bytes() == 0);
    device.memory_limit_bytes = 0;
    const Buffer large = device.allocate("large", 40 * mib);
}

TEST_CASE("what cannot fit is an error with the numbers") {
    Device device;
    const uint64_t max = device.capabilities().allocation_bytes;
    const std::string too_long = error_of([&] { (void)device.allocate("the cache", max + 1); });
    CHECK(contains(too_long, "the cache"));
    CHECK(contains(too_long, std::to_string(max)));
    CHECK(contains(error_of([&] { (void)device.allocate("x", UINT64_MAX); }), "18446744073709551615"));

    const Buffer small = device.allocate("small", 1);
    if (max + device.allocated_bytes() <= device.capabilities().memory_budget_bytes) {
        test::skip("this device has more memory than one buffer can take");
        return;
    }
    const std::string too_much = error_of([&] { (void)device.allocate("all of it", max); });
    CHECK(contains(too_much, fmt::format("no room for all of it ({:.1f} MiB)", double(max) / mib)));
    CHECK(contains(too_much, "-c"));
}

TEST_CASE("an upload arrives, directly and through staging, in pieces of every size") {
    for (const Uploader::Path path : {Uploader::Path::best, Uploader::Path::staged}) {
        Device device;
        const uint64_t bytes = 3 * Uploader::max_piece_bytes() + 4097;
        Buffer expected = device.allocate("expected", bytes, Memory::upload), buffer = device.allocate("buffer", bytes);
        std::mt19937 random(3);
        for (std::byte& byte : expected.host()) byte = std::byte(random());
        {
            Uploader uploader(device, path);
            for (uint64_t at = 0; at < bytes;) {
                const uint64_t max = at == 0 ? 1 : at < mib ? 100000 : Uploader::max_piece_bytes();
                const uint64_t length = std::min(max, bytes - at);
                (void)uploader.begin(View(buffer, at, length));
                uploader.cancel(); // and then as if it had never begun
                const std::span<std::byte> to = uploader.begin(View(buffer, at, length));
                REQUIRE(to.size() == length);
                std::memcpy(to.data(), expected.host().data() + at, length);
                uploader.end();
                at += length;
            }
            uploader.finish();
        }
        CHECK(mapped_sum(read_back(device, buffer)) == mapped_sum(expected));
    }
}

TEST_CASE("an uploader may be left with copies under way, and used again after finish") {
    Device device;
    Buffer buffer = device.allocate("buffer", 64);
    for (int i = 0; i < 5; i++) {
        Uploader uploader(device, Uploader::Path::staged);
        std::memset(uploader.begin(buffer).data(), 100, 64);
        uploader.end();
        if (i % 2) uploader.finish();
        std::memset(uploader.begin(buffer).data(), i, 64);
        uploader.end();
    }
    const Buffer back = read_back(device, buffer);
    for (const std::byte byte : back.host()) CHECK(byte == std::byte(4));
}

TEST_CASE("two devices live side by side, and outlive the first") {
    auto first = std::make_unique<Device>();
    Device second;
    first.reset();
    Buffer x = second.allocate("x", 256, Memory::readback);
    std::memset(x.host().data(), 0, 256);
    Recorder recorder(second);
    recorder.dispatch<test_shader::count_up>({1}, {}, {}, {}, x);
    recorder.finish().run();
    CHECK(x.host()[0] == std::byte(1));
}

TEST_CASE("kernels are built once, before they are recorded, and preparing runs nothing") {
    Device device;
    Buffer x = device.allocate("x", 256, Memory::readback), y = device.allocate("y", 256, Memory::readback);
    std::memset(x.host().data(), 0, 256);
    const auto body = [&](Recorder& recorder) {
        recorder.begin_label("both");
        recorder.dispatch<test_shader::count_up>({1}, {}, {}, {}, x);
        recorder.dispatch<test_shader::count_up>({1}, {}, {}, {}, x);
        recorder.copy(y, x);
        recorder.end_label();
    };
    CHECK(device.kernels_built().built == 0);
    Recorder::prepare(device, body);
    CHECK(device.kernels_built().built == 1);
    CHECK(device.kernels_built().seconds > 0);
    CHECK(contains(device.kernels_built().text(), "1 kernels built in "));
    CHECK(x.host()[0] == std::byte(0));
    Recorder::prepare(device, body);
    Recorder recorder(device);
    body(recorder);
    recorder.finish().run();
    CHECK(device.kernels_built().built == 1);
    CHECK(y.host()[0] == std::byte(2));

    BuildCount count{3, 2, 0.5};
    CHECK(count.text() == "3 kernels built in 0.50 s, 2 of them found in the cache");
}

namespace {

struct CacheFile {
    std::filesystem::path directory =
        std::filesystem::temp_directory_path() / fmt::format("tq-cache-test-{:x}", std::random_device{}());
    std::filesystem::path path = directory / "below" / "file";
    Capabilities device;
    std::vector<std::byte> data;

    CacheFile() {
        device.vendor_id = 0x10005;
        device.device_id = 7;
        for (uint8_t i = 0; i < 16; i++) device.pipeline_cache_uuid[i] = i;
        const uint32_t header[4] = {32, 1, device.vendor_id, device.device_id};
        data.resize(100, std::byte(9));
        std::memcpy(data.data(), header, 16);
        std::memcpy(data.data() + 16, device.pipeline_cache_uuid.data(), 16);
    }
    ~CacheFile() { std::filesystem::remove_all(directory); }
};

} // namespace

TEST_CASE("a pipeline cache is read back as it was written, and by its own device only") {
    CacheFile file;
    CHECK(read_pipeline_cache(file.path, file.device).empty()); // missing
    write_pipeline_cache(file.path, file.data);
    CHECK(read_pipeline_cache(file.path, file.device) == file.data);
    file.data.push_back(std::byte(1));
    write_pipeline_cache(file.path, file.data); // replaces
    CHECK(read_pipeline_cache(file.path, file.device) == file.data);
    CHECK(std::distance(std::filesystem::directory_iterator(file.path.parent_path()), {}) == 1); // no draft is left

    Capabilities other = file.device;
    other.device_id++;
    CHECK(read_pipeline_cache(file.path, other).empty());
    other = file.device;
    other.pipeline_cache_uuid[15]++;
    CHECK(read_pipeline_cache(file.path, other).empty());
    other = file.device;
    other.driver_version++;
    CHECK(pipeline_cache_path(other) != pipeline_cache_path(file.device));
}

TEST_CASE("a damaged pipeline cache is as good as none") {
    CacheFile file;
    write_pipeline_cache(file.path, file.data);
    std::ifstream in(file.path, std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(in), {}};
    auto reads_nothing = [&](const std::string& content) {
        std::ofstream(file.path, std::ios::binary) << content;
        return read_pipeline_cache(file.path, file.device).empty();
    };
    for (size_t i = 0; i < good.size(); i++) {
        std::string flipped = good;
        flipped[i] = char(flipped[i] ^ 0x10);
        CHECK(reads_nothing(flipped));
        CHECK(reads_nothing(good.substr(0, i)));
    }
    CHECK(reads_nothing(good + "x"));
    CHECK_FALSE(reads_nothing(good));
    CHECK(read_pipeline_cache(file.directory, file.device).empty()); // a directory
    write_pipeline_cache(file.path / "below a file", file.data);     // fails, which is no error
    CHECK(read_pipeline_cache(file.path, file.device) == file.data);
}
