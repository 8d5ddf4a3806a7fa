// tq-run doctor: whether a model runs well here, and what stands in the way: drivers, each in a child of its own, devices and
// their verdicts, memory, caches, environment. Problems have a remedy and make the exit status 1; hints do not. A verdict that
// names a failure is found anew, since a driver may have been mended; one that passed is believed.
// A GPU without a driver is found by the kernel's device nodes (/dev/dri, /dev/nvidia0), which tells "no GPU" from "no driver"
// and from "no permission".
#include "base/cache_directory.h"
#include "base/child_process.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/file_system.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/system_memory.h"
#include "runtime/device.h"
#include "tools/check/conformance/report.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/device_description.h"
#include "tools/tq-run/engine/drivers.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/proof.h"
#include "tools/tq-run/engine/verdict_file.h"
#include <fstream>
#include <thread>

namespace tq {
namespace {

namespace fs = std::filesystem;
using conformance::Json;

struct DoctorArguments {
    ModelSource model;
    ConsoleArguments console;
    bool json = false;
};

// Everything that was found. Problems make the exit status 1, hints do not.
struct Checkup {
    Json drivers = Json::array(), devices = Json::array(), caches = Json::object();
    std::vector<std::string> layers, problems, hints;
    std::string unloaded; // drivers that cannot be loaded, and what to do
    std::string model, loader;
};

std::string name_of(const Json& device) { return text_of(device, "name"); }

// Each driver is asked alone, in a child: one that crashes or hangs the loader would take all others with it, and which one it
// was could not be told.
void ask_drivers(Checkup& found, Console& console) {
    std::vector<std::vector<fs::path>> each;
    for (const fs::path& one : driver_manifests()) each.push_back({one});
    if (each.empty()) each.push_back({}); // the loader may know more than we do
    for (const auto& one : each) {
        const std::string file = one.empty() ? "all drivers" : utf8_text(one[0]);
        console.status(fmt::format("asking {}", printable(file, 200)));
        // A single driver is asked without variables that name it, since Wine would hand them on to another system's loader.
        const conformance::Listing listing = list_apart(each.size() == 1 ? std::vector<fs::path>() : one);
        Json names = Json::array();
        for (const Json& device : listing.all) names.push_back(name_of(device));
        found.drivers.push_back(
            {{"file", file}, {"devices", names}, {"died", listing.death}, {"says", listing.failure}, {"reason", listing.reason}});
        if (!listing.reason.empty())
            found.unloaded += fmt::format("{}the driver {} cannot be loaded ({}): {}", found.unloaded.empty() ? "" : "; ",
                                          printable(file, 300), listing.reason, unloadable_driver_advice);
        if (!listing.death.empty())
            found.problems.push_back(
                fmt::format("the driver {} does not survive being asked for its devices ({}): update or remove "
                            "it; until then it is left out",
                            printable(file, 300), printable(listing.death, 300)));
    }
    console.clear_status();
    for (const fs::path& one : layer_manifests()) found.layers.push_back(utf8_text(one));
}

// The devices of the drivers that are left, each proved for the model.
// survey_drivers() has left out the drivers that do not survive. A device that cannot be used is listed with its reason, and not
// proved.
void prove_devices(Checkup& found, const std::optional<conformance::Subject>& subject, Console& console) {
    if (!survey_drivers()) return;
    found.loader = api_version_text(loader_version());
    std::vector<Capabilities> devices;
    try {
        devices = list_devices();
    } catch (const Error& error) {
        if (found.unloaded.empty()) found.hints.push_back(error.what());
    }
    for (size_t i = 0; i < devices.size() && !interrupted(); i++) {
        Json device{{"device", std::to_string(i)}};
        device.update(describe(devices[i]));
        if (subject && devices[i].unusable.empty()) {
            const auto verdict = prove({devices[i], std::to_string(i)}, *subject, console, Believe::success);
            device["verdict"] = {{"profile", verdict.profile}, {"failure", verdict.failure},
                                 {"known", verdict.known},     {"rows", verdict.rows},
                                 {"seconds", verdict.seconds}, {"file", utf8_text(verdicts_path(devices[i]))}};
            if (!verdict.failure.empty())
                found.problems.push_back(
                    fmt::format("{} fails the check of its kernels ({}), and {}: try a newer driver, and please report it with "
                                "the files that "
                                "{} writes",
                                name_of(device), printable(verdict.failure, 300),
                                verdict.usable() ? "runs with the limits of the profile " + verdict.profile : "is not used",
                                report_command(std::to_string(i))));
        }
        found.devices.push_back(std::move(device));
    }
}

// Finds a GPU that the kernel shows and no driver uses.
// The nodes are Linux's. On other systems there are none, and it looks as if there were no GPU.
void look_for_idle_gpus(Checkup& found) {
    for (const Json& device : found.devices)
        if (text_of(device, "type") != "cpu" && device.value("usable", false)) return;
    std::error_code error;
    std::string node;
    for (fs::directory_iterator at("/dev/dri", error), end; !error && at != end; at.increment(error))
        if (utf8_text(at->path().filename()).starts_with("renderD")) node = utf8_text(at->path());
    if (fs::exists("/dev/nvidia0", error)) node = "/dev/nvidia0";
    if (node.empty()) {
        found.hints.push_back("no GPU was found, so models run on the CPU");
        if (!found.unloaded.empty()) found.hints.push_back(found.unloaded);
        return;
    }
    const bool readable = bool(std::ifstream(node));
    found.problems.push_back(
        readable
            ? fmt::format("there is a GPU ({}), and no Vulkan driver uses it: {}install one (Debian, Ubuntu: apt install "
                          "mesa-vulkan-drivers; Fedora: dnf install mesa-vulkan-drivers; NVIDIA: the vendor's driver)",
                          node, found.unloaded.empty() ? "" : found.unloaded + "; where that is not this GPU's, ")
            : fmt::format("there is a GPU ({}) that you may not open: add yourself to its group (usermod -aG render,video NAME)",
                          node));
}

// Bytes by what the files are for.
// Whether a directory can be written is tried rather than read from its permissions: read-only mounts and full quotas do not show
// there.
void measure_caches(Checkup& found) {
    const fs::path directory = cache_directory();
    found.caches = {{"directory", utf8_text(directory)}};
    if (directory.empty()) {
        found.problems.push_back(
            "the environment names no cache directory, so that nothing is kept between runs: set TQ_CACHE_DIR");
        return;
    }
    std::error_code error;
    fs::create_directories(directory, error);
    const fs::path probe = directory / ".doctor";
    if (!std::ofstream(probe))
        found.problems.push_back(
            fmt::format("the cache directory {} cannot be written, so that nothing is kept between runs: make it "
                        "writable, or set TQ_CACHE_DIR to another one",
                        printable(utf8_text(directory), 300)));
    fs::remove(probe, error);
    Json kinds = Json::object();
    for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
        std::error_code no_size;
        const uintmax_t bytes = at->is_regular_file(no_size) ? taken_bytes(at->path(), no_size) : 0;
        if (no_size || bytes == 0) continue;
        const std::string name = utf8_text(at->path().filename()), kind = name.ends_with(".pipelines")     ? "compiled kernels"
                                                                          : name.ends_with(".tuning.json") ? "tuning"
                                                                          : at.depth() == 0                ? "verdicts and others"
                                                                                                           : "";
        const std::string of = kind.empty() ? utf8_text(*fs::relative(at->path(), directory, no_size).begin()) : kind;
        kinds[printable(of)] = kinds.value(printable(of), uintmax_t(0)) + bytes;
    }
    found.caches["bytes"] = kinds;
}

Json to_json(const Checkup& found) {
    return {{"program", build_description()},
            {"system", system_name()},
            {"threads", std::thread::hardware_concurrency()},
            {"memory_bytes", physical_memory_bytes()},
            {"vulkan_loader", found.loader},
            {"drivers", found.drivers},
            {"layers", found.layers},
            {"proved_for", found.model},
            {"devices", found.devices},
            {"cache", found.caches},
            {"environment", conformance::driver_environment()},
            {"problems", found.problems},
            {"hints", found.hints}};
}

std::string verdict_text(const Json& device, const std::string& model) {
    if (!device.value("usable", false)) return "cannot be used: " + text_of(device, "unusable");
    const auto verdict = device.find("verdict");
    if (verdict == device.end()) return "not checked";
    const std::string profile = text_of(*verdict, "profile"), failure = text_of(*verdict, "failure");
    const std::string result = failure.empty()   ? "its kernels are right"
                               : profile.empty() ? "NOT USED: its kernels fail"
                                                 : fmt::format("LIMITED to the profile {}", profile);
    return fmt::format("{} for {}{}", result, model,
                       verdict->value("known", false)
                           ? ", as was found earlier"
                           : fmt::format(" ({} rows, {:.1f} s)", verdict->value("rows", 0), verdict->value("seconds", 0.0)));
}

std::string report(const Checkup& found) {
    std::string text = fmt::format("{}\n", build_description());
    const auto add = [&](const char* what, const std::string& value) { text += fmt::format("{:<12} {}\n", what, value); };
    const uint64_t memory = physical_memory_bytes();
    add("system", fmt::format("{}, {} threads, {} of memory", printable(system_name()), std::thread::hardware_concurrency(),
                              memory == UINT64_MAX ? "an unknown amount" : size_text(memory)));
    add("loader", found.loader.empty()      ? "none is used"
                  : found.loader == "0.0.0" ? "there is no Vulkan loader"
                                            : "Vulkan " + found.loader);
    for (const Json& driver : found.drivers) {
        std::string devices;
        for (const Json& name : driver.at("devices")) devices += (devices.empty() ? "" : ", ") + name.get<std::string>();
        const bool died = !text_of(driver, "died").empty();
        const std::string reason = text_of(driver, "reason");
        add("driver", fmt::format("{}: {}", printable(text_of(driver, "file"), 300),
                                  died              ? "CRASHES OR HANGS"
                                  : !reason.empty() ? "cannot be loaded: " + reason
                                  : devices.empty() ? "no device"
                                                    : devices));
    }
    for (const std::string& layer : found.layers) add("layer", printable(layer, 300));
    for (const Json& device : found.devices)
        add("device",
            fmt::format("{} {}, {} {}; {}, {} free; {}", text_of(device, "device"), name_of(device),
                        text_of(device, "driver_name"), text_of(device, "driver_info"),
                        size_text(device.value("memory_bytes", uint64_t(0))),
                        size_text(device.value("memory_budget_bytes", uint64_t(0))), verdict_text(device, found.model)));
    std::string sizes;
    const Json kinds = found.caches.value("bytes", Json::object()), variables = conformance::driver_environment();
    for (const auto& [kind, bytes] : kinds.items())
        sizes += fmt::format("{} {} {}", sizes.empty() ? ":" : ",", kind, size_text(bytes.get<uint64_t>()));
    const std::string directory = text_of(found.caches, "directory");
    add("cache", directory.empty() ? "none" : printable(directory, 300) + sizes);
    for (const auto& [name, value] : variables.items())
        add("environment", printable(fmt::format("{}={}", name, value.get<std::string>()), 300));
    for (const std::string& hint : found.hints) add("note", hint);
    for (const std::string& problem : found.problems) add("PROBLEM", problem);
    return text + (found.problems.empty() ? "nothing stands in the way of a model here\n" : "");
}

// A missing demo model is a hint, as drivers and memory can be judged without one. A model that was named must be there.
int run(const DoctorArguments& arguments) {
    Console console = arguments.console.console();
    Checkup found;
    catch_interrupts();
    if (proving_seconds() == 0) set_environment_variable("TQ_PROVE", ""); // here nothing is believed unchecked
    ask_drivers(found, console);
    std::optional<conformance::Subject> subject;
    try {
        const Model model = load_model(find_model(arguments.model, console));
        subject = conformance::subject_of(model.config, model.weights, KvArguments{}.options()); // as chat runs it
        found.model = model.name;
    } catch (const Error& error) {
        if (!arguments.model.is_demo()) throw;
        found.hints.push_back(error.what());
    }
    prove_devices(found, subject, console);
    look_for_idle_gpus(found);
    measure_caches(found);
    if (interrupted()) return 130;
    (arguments.json ? write_output : write_text)(
        arguments.json ? to_json(found).dump(2, ' ', false, Json::error_handler_t::replace) + '\n' : report(found));
    return found.problems.empty() ? 0 : 1;
}

} // namespace

void add_doctor(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, DoctorArguments& a) {
        add_model_flags(command, a.model);
        add_flag(command, "--json", a.json, "print everything as JSON");
        add_flags(command, a.console);
    };
    add_command<DoctorArguments>(app, action, "doctor",
                                 "Check drivers, devices, memory and caches; exit code 0 where nothing stands in the way", flags,
                                 run);
}

} // namespace tq
