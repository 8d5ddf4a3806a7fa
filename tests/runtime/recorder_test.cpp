// Barriers, segments, runs and the profile. Under TQ_VALIDATE=1 synchronization validation checks every omitted barrier.
#include "base/error.h"
#include "runtime/device_impl.h"
#include "runtime/hazards.h"
#include "runtime/recorder.h"
#include "test_shaders.gen.h"
#include <cstring>
#include <doctest/doctest.h>
#include <stdexcept>
using namespace tq;
using test_shader::count_up;
using test_shader::sum;

namespace {

constexpr uint32_t n = 256; // elements of a test's buffers; offsets in steps of 64 elements satisfy every device's alignment

std::span<uint32_t> words(const Buffer& buffer) {
    return {reinterpret_cast<uint32_t*>(buffer.host().data()), size_t(buffer.bytes() / 4)};
}

Buffer zeros(Device& device, const char* label) {
    Buffer buffer = device.allocate(label, n * 4, Memory::readback);
    std::memset(buffer.host().data(), 0, n * 4);
    return buffer;
}

// y = a + b
void add(Recorder& recorder, View y, View a, View b) {
    recorder.dispatch<sum>({uint32_t(y.bytes / 4 + 127) / 128}, {.which = 0, .bias = 0}, {uint32_t(y.bytes / 4), {}},
                           {y.bytes * 3, y.bytes / 4}, y, a, b);
}

void up(Recorder& recorder, View x, Work work = {}) {
    recorder.dispatch<count_up>({uint32_t(x.bytes / 4 + 63) / 64}, {}, {}, work, x);
}

bool all_are(const Buffer& buffer, uint32_t value) {
    for (const uint32_t word : words(buffer))
        if (word != value) return false;
    return true;
}

} // namespace

TEST_CASE("hazards are reads after writes, writes after reads and writes after writes, of the same bytes") {
    int one, other;
    const Access read{&one, 0, 64, true, false}, write{&one, 0, 64, false, true}, both{&one, 0, 64, true, true};
    auto conflict = [](Access first, Access second) {
        Hazards hazards;
        CHECK_FALSE(hazards.add({&first, 1}, CommandKind::kernel));
        return hazards.add({&second, 1}, CommandKind::kernel).has_value();
    };
    CHECK_FALSE(conflict(read, read));
    CHECK(conflict(write, read));
    CHECK(conflict(read, write));
    CHECK(conflict(write, write));
    CHECK(conflict(both, read));
    CHECK_FALSE(conflict(write, {&other, 0, 64, true, true}));
    CHECK_FALSE(conflict(write, {&one, 64, 128, true, true}));
    CHECK(conflict(write, {&one, 63, 128, true, false}));
    CHECK(conflict({&one, 32, 33, false, true}, read));
}

TEST_CASE("a barrier orders everything before it") {
    int a, b;
    Hazards hazards;
    const Access write_a{&a, 0, 4, false, true}, write_b{&b, 0, 4, false, true}, read_a{&a, 0, 4, true, false},
        read_b{&b, 0, 4, true, false};
    const auto add = [&](const Access& access) { return hazards.add({&access, 1}, CommandKind::kernel).has_value(); };
    CHECK_FALSE(add(write_a));
    CHECK_FALSE(add(write_b));
    CHECK(add(read_a));
    CHECK_FALSE(add(read_b));
    CHECK(add(write_b)); // that read came after the barrier
}

TEST_CASE("barriers name copies where they are concerned, and copies do not wait for those that do not") {
    int a, b, c;
    Hazards hazards;
    const Access write_a{&a, 0, 4, false, true}, read_a{&a, 0, 4, true, false}, write_b{&b, 0, 4, false, true},
        read_b{&b, 0, 4, true, false}, read_c{&c, 0, 4, true, false};
    // "": no barrier; kernels: between kernels alone; before: copies came before; around: a copy comes after.
    const auto add = [&](const Access& access, CommandKind kind) -> std::string {
        const auto needed = hazards.add({&access, 1}, kind);
        if (!needed) return "";
        return needed->copies_after ? "around" : needed->copies_before ? "before" : "kernels";
    };
    CHECK(add(write_a, CommandKind::kernel) == "");
    CHECK(add(read_a, CommandKind::kernel) == "kernels");
    CHECK(add(read_c, CommandKind::copy) == "");
    CHECK(add(read_a, CommandKind::copy) == "around"); // that barrier was not for copies
    CHECK(add(read_a, CommandKind::copy) == "");
    CHECK(add(write_b, CommandKind::copy) == "");
    CHECK(add(read_b, CommandKind::kernel) == "before");
    CHECK(add(write_b, CommandKind::kernel) == "kernels");
    CHECK(add(read_c, CommandKind::kernel) == "");
    CHECK(add(read_b, CommandKind::copy) == "around");
}

TEST_CASE("barriers go in exactly where dispatches conflict") {
    Device device;
    Buffer x = zeros(device, "x"), a = zeros(device, "a"), b = zeros(device, "b"), h = zeros(device, "h"), q = zeros(device, "q"),
           k = zeros(device, "k"), y = zeros(device, "y");
    for (uint32_t& word : words(x)) word = 1;
    Recorder recorder(device);
    add(recorder, h, x, x); // h = 2
    CHECK(recorder.barriers() == 0);
    add(recorder, q, a, h); // reads h
    CHECK(recorder.barriers() == 1);
    add(recorder, k, b, h); // independent of q
    CHECK(recorder.barriers() == 1);
    add(recorder, y, q, x); // reads q
    CHECK(recorder.barriers() == 2);
    add(recorder, h, k, x); // after k and the readers of h already
    CHECK(recorder.barriers() == 2);
    recorder.copy(a, b); // after the reader of a, which copies have not waited for yet
    CHECK(recorder.barriers() == 3);
    recorder.copy(b, h);
    CHECK(recorder.barriers() == 4);
    CHECK(recorder.finish().run());
    CHECK(all_are(y, 3));
    CHECK(all_are(h, 3));
    CHECK(all_are(b, 3));
    CHECK(all_are(a, 0));
}

TEST_CASE("parts of a buffer that do not overlap do not conflict") {
    Device device;
    Buffer x = zeros(device, "x");
    Recorder recorder(device);
    for (uint32_t part = 0; part < 4; part++) up(recorder, View(x, part * 256, 256));
    CHECK(recorder.barriers() == 0);
    up(recorder, View(x, 256, 512)); // two of the parts
    CHECK(recorder.barriers() == 1);
    CHECK(recorder.finish().run());
    for (uint32_t i = 0; i < n; i++) CHECK(words(x)[i] == (i >= 64 && i < 192 ? 2 : 1));
}

TEST_CASE("a long chain in place: more sets than a pool holds, and each step after the last") {
    Device device;
    Buffer x = zeros(device, "x");
    Recorder recorder(device);
    for (int i = 0; i < 1000; i++) up(recorder, x);
    CHECK(recorder.barriers() == 999);
    CHECK(recorder.finish().run());
    CHECK(all_are(x, 1000));
}

TEST_CASE("a recording runs again and sees what the host wrote in between") {
    Device device;
    Buffer x = device.allocate("x", n * 4, Memory::upload), mine = device.allocate("mine", n * 4), y = zeros(device, "y");
    Recorder recorder(device);
    recorder.copy(mine, x);
    add(recorder, mine, x, x); // writes what the copy wrote
    recorder.copy(y, mine);
    Commands commands = recorder.finish();
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t& word : words(x)) word = round;
        REQUIRE(commands.run());
        CHECK(all_are(y, 2 * round));
    }
}

TEST_CASE("specialisation constants and params reach the kernel, one pipeline for each set of constants") {
    Device device;
    Buffer zero = zeros(device, "zero"), y = zeros(device, "y");
    for (uint32_t which = 0; which < 3; which++)
        for (const uint32_t bias : {0u, 1000u}) {
            Recorder recorder(device);
            recorder.dispatch<sum>({2}, {.which = which, .bias = bias}, {n, {10, 20, 30}}, {}, y, zero, zero);
            recorder.finish().run();
            CHECK(all_are(y, 10 * (which + 1) + bias));
        }
}

TEST_CASE("a recording is cut where it would take too long, and can be stopped there") {
    Device device;
    Buffer x = zeros(device, "x");
    const Work long_work{uint64_t(1) << 40, 0}; // seconds, on any device
    Recorder recorder(device);
    recorder.begin_label("outer"); // a label may span segments
    for (int i = 0; i < 6; i++) up(recorder, x, long_work);
    for (int i = 0; i < 6; i++) up(recorder, x); // all of them in the last segment
    recorder.end_label();
    Commands commands = recorder.finish();
    CHECK(commands.segments() == 7);

    int asked = 0;
    CHECK(commands.run([&] { return ++asked < 100; }));
    CHECK(asked == 6);
    CHECK(all_are(x, 12));

    asked = 0;
    CHECK_FALSE(commands.run([&] { return ++asked < 3; })); // submits three segments
    CHECK(all_are(x, 15));
    CHECK_THROWS_AS(commands.run([]() -> bool { throw std::runtime_error("stop"); }), std::runtime_error);
    CHECK(all_are(x, 16)); // the submitted work has finished
    CHECK(commands.run());
    CHECK(all_are(x, 28));
}

TEST_CASE("recordings run back to back in the order given, in one segment or several, as often as they are there") {
    Device device;
    for (const uint64_t bytes : {uint64_t(n), uint64_t(1) << 40}) { // short; seconds, on any device
        Buffer x = zeros(device, "x"), y = zeros(device, "y"), z = zeros(device, "z");
        Recorder first(device), step(device, Again::at_any_time), last(device);
        up(first, x, {bytes, 0});
        up(step, x, {bytes, 0});
        add(step, y, y, x);
        last.copy(z, y);
        Commands begin = first.finish(), middle = step.finish(), end = last.finish();
        CHECK(middle.segments() == (bytes == n ? 1 : 2));
        std::vector<Commands*> all(22, &middle);
        all.front() = &begin;
        all.back() = &end;
        for (uint32_t run = 0, sum = 0, count = 0; run < 3; run++) {
            Commands::run_all(all);
            count++;
            for (int i = 0; i < 20; i++) sum += ++count;
            CHECK(all_are(z, sum));
        }
        Commands::run_all({});
    }
}

TEST_CASE("short work is one segment, and nothing at all runs, too") {
    Device device;
    Buffer x = zeros(device, "x");
    Recorder recorder(device);
    for (int i = 0; i < 50; i++) up(recorder, x, {n * 8, n});
    Commands commands = recorder.finish();
    CHECK(commands.segments() == 1);
    Commands empty = Recorder(device).finish();
    CHECK(empty.run([] { return false; })); // never called: there is nothing to stop in between
    CHECK(commands.run());
    CHECK(all_are(x, 50));
}

TEST_CASE("the profile counts calls, bytes and time by kernel, across query pools and runs") {
    Device device;
    Buffer x = zeros(device, "x"), y = zeros(device, "y");
    device.profile = true;
    Recorder recorder(device);
    for (int i = 0; i < 700; i++) up(recorder, x, {100, 10}); // more timestamps than a pool holds
    add(recorder, y, x, x);
    recorder.copy(x, y);
    Commands commands = recorder.finish();
    commands.run();
    commands.run();
    const std::vector<ProfileRow> rows = device.take_profile();
    if (device.capabilities().timestamp_ns == 0) {
        CHECK(rows.empty());
        return;
    }
    REQUIRE(rows.size() == 3);
    for (const ProfileRow& row : rows) {
        CHECK(row.ns > 0);
        CHECK(row.ns < 60e9);
        if (row.kernel == "count_up") {
            CHECK(row.calls == 1400);
            CHECK(row.bytes == 140000);
            CHECK(row.flops == 14000);
        } else
            CHECK(row.calls == 2);
    }
    CHECK(device.take_profile().empty());
}

TEST_CASE("a profile as a table") {
    const std::string table = profile_table({{"small", 10, 1e6, 2000, 0}, {"matvec", 2, 3e6, 6000000, 3000000}});
    CHECK(table == "kernel    calls    us/call      GB/s   GFLOP/s   share\n"
                   "matvec        2     1500.0      2.00      1.00   75.0%\n"
                   "small        10      100.0      0.00      0.00   25.0%\n"
                   "total               4000.0 us in all\n");
    CHECK(profile_table({}).find("no timestamps") != std::string::npos);
}

namespace {

// The driver's own functions, which the functions of this test call.
PFN_vkResetFences reset_fences;
PFN_vkQueueSubmit queue_submit;
VkDevice device_of_fences;
int resets_to_fail, submitted_signalled;

VKAPI_ATTR VkResult VKAPI_CALL failing_reset(VkDevice device, uint32_t count, const VkFence* fences) {
    return resets_to_fail-- > 0 ? VK_ERROR_OUT_OF_DEVICE_MEMORY : reset_fences(device, count, fences);
}

VKAPI_ATTR VkResult VKAPI_CALL watched_submit(VkQueue queue, uint32_t count, const VkSubmitInfo* submits, VkFence fence) {
    submitted_signalled += vkGetFenceStatus(device_of_fences, fence) == VK_SUCCESS;
    return queue_submit(queue, count, submits, fence);
}

} // namespace

TEST_CASE("where a fence cannot be reset, nothing runs behind it, and later work waits as it should") {
    Device device;
    Buffer x = zeros(device, "x");
    Recorder recorder(device);
    up(recorder, x);
    Commands commands = recorder.finish();
    reset_fences = std::exchange(vkResetFences, failing_reset);
    queue_submit = std::exchange(vkQueueSubmit, watched_submit);
    device_of_fences = device.impl().handle;
    submitted_signalled = 0;
    uint32_t ran = 0;
    for (int round = 0; round < 4; round++) {
        resets_to_fail = round % 2;
        try {
            commands.run();
            ran++;
            CHECK(all_are(x, ran));
        } catch (const OutOfMemory&) {
            CHECK(round % 2 == 1);
        }
    }
    vkResetFences = reset_fences;
    vkQueueSubmit = queue_submit;
    CHECK(submitted_signalled == 0);
    CHECK(ran == 2);
    CHECK(all_are(x, ran));
}
