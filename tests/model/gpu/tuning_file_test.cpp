// Files of tunings: read back as they were written, only by their own device; and hostile ones.
#include "base/error.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include "tests/support/temporary_file.h"
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
using namespace tq;
using gpu::Tuning;
using nlohmann::json;

namespace {

// An empty value is equivalent to an unset variable.
void set_environment(const char* name, const std::string& value) {
#ifdef _WIN32
    _putenv_s(name, value.c_str());
#else
    setenv(name, value.c_str(), 1);
#endif
}

// The cache directory of this process, inside an existing one.
struct Place {
    test::TemporaryDirectory directory;
    std::filesystem::path cache = directory.path() / "new" / "cache";
    Capabilities device;

    Place() {
        set_environment("TQ_CACHE_DIR", cache.string());
        set_environment("TQ_TUNING", "");
        device.name = "made up \x1b[31m";
        device.type = DeviceType::discrete;
        device.profile = "none";
        device.vendor_id = 7;
        device.max_workgroup_invocations = 1024;
        device.max_workgroup_size = {1024, 1024, 64};
        device.shared_memory_bytes = 49152;
    }
    ~Place() { set_environment("TQ_CACHE_DIR", ""); }

    Tuning by_default() const { return gpu::choose_tuning(device); }
    Tuning other() const {
        Tuning tuning = by_default();
        tuning.splits = 64;
        tuning.batch_size = 128;
        tuning.matvec_lanes = 1;
        tuning.weight_interleave = gpu::interleaved_rows(tuning);
        return tuning;
    }
    json content() const { return json::parse(std::ifstream(gpu::tuning_path(device))); }
    void write(const std::string& text) const { std::ofstream(gpu::tuning_path(device), std::ios::binary) << text; }
};

std::string problem_of(const Place& place) {
    const gpu::StoredTuning stored = gpu::stored_tuning(place.device);
    CHECK(!stored.tuning);
    CHECK(gpu::tuning_for(place.device) == place.by_default());
    CHECK(stored.problem.find("bench --tune --reset") != std::string::npos);
    CHECK(stored.problem.find('\n') == std::string::npos);
    CHECK(stored.problem.find('\x1b') == std::string::npos);
    return stored.problem;
}

} // namespace

TEST_CASE("a tuning is used once it is stored, until it is forgotten") {
    const Place place;
    CHECK(!gpu::stored_tuning(place.device).tuning);
    CHECK(gpu::stored_tuning(place.device).problem.empty());
    CHECK(gpu::tuning_for(place.device) == place.by_default());
    CHECK(!gpu::forget_tuning(place.device));
    gpu::store_tuning(place.device, place.by_default(), {});
    gpu::store_tuning(place.device, place.other(), {{"seconds", 1.5}}); // replaces the file
    CHECK(gpu::stored_tuning(place.device).tuning == place.other());
    CHECK(gpu::tuning_for(place.device) == place.other());
    CHECK(place.content()["measured"]["seconds"] == 1.5);
    CHECK(std::distance(std::filesystem::directory_iterator(place.cache), {}) == 1); // no draft is left

    set_environment("TQ_TUNING", "default");
    CHECK(gpu::tuning_for(place.device) == place.by_default());
    set_environment("TQ_TUNING", "stored");
    CHECK(gpu::tuning_for(place.device) == place.other());
    set_environment("TQ_TUNING", "fast");
    CHECK_THROWS_WITH_AS(gpu::tuning_for(place.device), "TQ_TUNING is \"fast\"; it can be \"stored\" or \"default\"", Error);
    set_environment("TQ_TUNING", "");

    CHECK(gpu::forget_tuning(place.device));
    CHECK(gpu::tuning_for(place.device) == place.by_default());
    CHECK(!gpu::forget_tuning(place.device));
}

TEST_CASE("a tuning is that of one device, driver and profile") {
    const Place place;
    gpu::store_tuning(place.device, place.other(), {});
    const auto unlike = [&](auto change) {
        Capabilities other = place.device;
        change(other);
        CHECK(gpu::tuning_path(other) != gpu::tuning_path(place.device));
        CHECK(gpu::tuning_for(other) == place.by_default());
    };
    unlike([](Capabilities& c) { c.vendor_id++; });
    unlike([](Capabilities& c) { c.device_id++; });
    unlike([](Capabilities& c) { c.driver_version++; });
    unlike([](Capabilities& c) { c.pipeline_cache_uuid[15]++; });
    unlike([](Capabilities& c) { c.profile = "mobile"; });

    Capabilities renamed = place.device; // it has the same file
    renamed.name = "another";
    CHECK(!gpu::stored_tuning(renamed).tuning);
    CHECK(gpu::stored_tuning(renamed).problem.find("another device") != std::string::npos);
}

TEST_CASE("a file that is damaged, foreign or hostile is not used, and says why") {
    const Place place;
    gpu::store_tuning(place.device, place.other(), {});
    const json good = place.content();
    const std::string text = good.dump();
    for (size_t i = 0; i + 1 < text.size(); i++) {
        place.write(text.substr(0, i));
        CHECK(!problem_of(place).empty());
    }
    const auto changed = [&](auto change) {
        json other = good;
        change(other);
        place.write(other.dump());
        return problem_of(place);
    };
    const auto says = [](const std::string& problem, const char* part) {
        CAPTURE(problem);
        CHECK(problem.find(part) != std::string::npos);
    };
    says(changed([](json& j) { j = json::array(); }), "it has no \"schema\"");
    says(changed([](json& j) { j["schema"] = "tq-run-bench"; }), "not of version 1 of tq-run-tuning");
    says(changed([](json& j) { j["version"] = 2; }), "not of version 1 of tq-run-tuning");
    says(changed([](json& j) { j["device"]["driver_version"] = 99; }), "another device or driver");
    says(changed([](json& j) { j["device"] = 5; }), "another device or driver");
    says(changed([](json& j) { j.erase("kernels"); }), "it has no \"kernels\"");
    says(changed([](json& j) { j["kernels"] = "all"; }), "choices");
    says(changed([](json& j) { j["kernels"].erase("splits"); }), "choices");
    says(changed([](json& j) { j["kernels"]["more"] = 1; }), "choices");
    says(changed([](json& j) { j["kernels"].erase("splits"), j["kernels"]["more"] = 1; }), "it has no \"splits\"");
    for (const json& value : {json(-1), json(1.5), json("64"), json(nullptr), json(true), json::array(), json(uint64_t(1) << 40)})
        says(changed([&](json& j) { j["kernels"]["splits"] = value; }), "\"splits\" is not a whole number");
    for (const uint32_t value : {0u, 3u, 65u, 4000000000u})
        for (const gpu::TuningField& field : gpu::tuning_fields()) {
            if (std::ranges::find(field.values, value) != field.values.end())
                continue; // switches and fields that are optional can be 0
            CHECK(!changed([&](json& j) { j["kernels"][field.name] = value; }).empty());
        }
    says(changed([](json& j) { j["kernels"]["matvec_lanes"] = 64, j["kernels"]["workgroup"] = 32; }), "do not divide");
    place.write("{\"schema\": 1, \"schema\": 2}");
    says(problem_of(place), "is not used");
    place.write(std::string(300, '['));
    says(problem_of(place), "is not used");
    place.write(std::string(1 << 20, ' '));
    says(problem_of(place), "1048576 bytes");
    place.write("");
    says(problem_of(place), "is not used");
    place.write("\"\x1b[31m\n");
    says(problem_of(place), "is not used");

    const std::filesystem::path path = gpu::tuning_path(place.device);
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    says(problem_of(place), "cannot be read");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("nowhere", path);
    says(problem_of(place), "cannot be read");
    gpu::store_tuning(place.device, place.other(), {}); // replaces the link
    CHECK(gpu::tuning_for(place.device) == place.other());
}

TEST_CASE("where a tuning cannot be stored it says so, and leaves nothing behind") {
    const Place place;
    std::filesystem::create_directories(place.cache.parent_path());
    std::ofstream(place.cache) << "a file";
    const auto complaint = [&]() -> std::string {
        try {
            gpu::store_tuning(place.device, place.other(), {});
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    CHECK(complaint().find("TQ_CACHE_DIR") != std::string::npos);
    std::filesystem::remove(place.cache);
    std::filesystem::create_directories(gpu::tuning_path(place.device) / "in the way");
    CHECK(complaint().find("cannot store the tuning in") != std::string::npos);
    CHECK(std::distance(std::filesystem::directory_iterator(place.cache), {}) == 1);
    CHECK_THROWS_AS(gpu::forget_tuning(place.device), Error);
}
