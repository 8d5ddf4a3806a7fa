// The flags that say where layers and experts run.
// -ngl, -ts and --layers-per-rank are kept as the user wrote them. wishes() makes numbers of them; it need not report errors,
// because each flag was checked by the same rules when it was read. check() finds what two flags say against each other. Layers
// are counted as llama.cpp does: the last N are on devices, and one more is the output matrix.
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/stages/placement.h"
#include "tools/tq-run/cli/arguments.h"
#include <algorithm>
#include <numeric>

namespace tq {

bool PlacementArguments::given() const {
    return wishes().gpu_layers.has_value() || cpu_moe || cpu_moe_layers > 0 || !tensor_split.empty();
}

// -ts may name the CPU among the devices. Its share becomes cpu_share, a part of all layers; device_shares() are the others,
// which divide the rest.
PlacementWishes PlacementArguments::wishes() const {
    PlacementWishes wishes{.cpu_feed_forwards = cpu_moe ? UINT32_MAX : cpu_moe_layers, .fit = fit != "off"};
    uint32_t layers = 0;
    if (parse_number(gpu_layers, layers)) wishes.gpu_layers = layers; // else auto or all
    const std::vector<double> all = shares(), devices = device_shares();
    const auto sum = [](const std::vector<double>& of) { return std::accumulate(of.begin(), of.end(), 0.0); };
    if (sum(all) > 0) wishes.cpu_share = 1 - sum(devices) / sum(all);
    return wishes;
}

void PlacementArguments::check() const {
    const PlacementWishes both = wishes();
    if (both.gpu_layers && both.cpu_share > 0)
        fail("-ngl {} and the share of cpu in -ts {} both say what is left to the CPU: give one of them", gpu_layers,
             printable(tensor_split));
}

std::vector<double> PlacementArguments::device_shares() const {
    const std::vector<double> all = shares();
    if (all.size() != cpu_among.size()) return all;
    std::vector<double> out;
    for (size_t i = 0; i < all.size(); i++)
        if (!cpu_among[i]) out.push_back(all[i]);
    return out;
}

std::vector<uint32_t> PlacementArguments::rank_layers() const {
    std::vector<uint32_t> out;
    if (layers_per_rank == "auto") return out;
    for (std::string_view rest = layers_per_rank; !rest.empty();) { // a comma at the end is nothing
        const size_t length = std::min(rest.find(','), rest.size());
        uint32_t layers = 0;
        if (!parse_number(rest.substr(0, length), layers))
            fail("it must be auto or a list of numbers such as 12,12,8, not {}", printable(layers_per_rank));
        out.push_back(layers);
        rest.remove_prefix(std::min(length + 1, rest.size()));
    }
    return out;
}

std::vector<double> PlacementArguments::shares() const {
    std::vector<double> out;
    for (std::string_view rest = tensor_split; !rest.empty();) {
        const size_t length = std::min(rest.find_first_of(",/;"), rest.size());
        double share = 0;
        if (!parse_number(rest.substr(0, length), share) || !(share >= 0 && share <= 1e6))
            fail("it must be a list of numbers such as 3,1, not {}", printable(tensor_split));
        out.push_back(share);
        rest.remove_prefix(std::min(length + 1, rest.size()));
    }
    return out;
}

void add_flags(ArgumentParser& command, PlacementArguments& a) {
    ArgumentParser group = command.group("Device and memory");
    add_option(group, "--gpu-layers", a.gpu_layers, "N",
               "layers on devices, the last N, and with one more the output matrix; auto or all: as many as fit; default: auto")
        .check([](std::string& text) {
            uint32_t number = 0;
            const bool is_number = parse_number(text, number);
            if (text == "-1") text = "auto"; // its former spelling
            return is_number || text == "auto" || text == "all" ? std::string()
                                                                : "it must be a number, auto or all, not " + printable(text);
        })
        .values("auto all");
    add_option(group, "--n-cpu-moe", a.cpu_moe_layers, "N",
               "keep the experts (or feed-forward networks) of the first N layers on the CPU; default: 0")
        .check(number(0, 1 << 20));
    add_flag(group, "--cpu-moe", a.cpu_moe, "keep the experts (or feed-forward networks) of all layers on the CPU");
    add_flag(group, "--no-op-offload", a.no_op_offload,
             "compute the CPU's feed-forward networks on the CPU in prompts, too; default: long blocks of a prompt on devices, "
             "with weights that are uploaded for each block, where that is predicted to be faster");
    add_option(group, "--op-offload-min-batch", a.op_offload_min_batch, "N",
               "compute the CPU's feed-forward networks on devices in blocks of at least N tokens of a prompt; default: 0 (as "
               "predicted)")
        .check(number(0, 1 << 20));
    add_option(group, "--tensor-split", a.tensor_split, "LIST",
               "shares of the layers for the devices of --device, cpu among them, such as 3,1; default: by their memory")
        .check(parsed_by([](const std::string& text) { (void)PlacementArguments{.tensor_split = text}.shares(); }));
    add_option(group, "--layers-per-rank", a.layers_per_rank, "LIST",
               "several processes, started by mpirun or srun, share the model: auto (by their memory), or the layers of each, "
               "such as 12,12,8; --device then lists the device of each")
        .values("auto")
        .check(parsed_by([](const std::string& text) { (void)PlacementArguments{.layers_per_rank = text}.rank_layers(); }));
    add_option(group, "--fit", a.fit, "WHEN",
               fmt::format("place on the CPU what does not fit the devices: on, or off to refuse; default: {}", a.fit).c_str())
        .one_of("on off");
}

} // namespace tq
