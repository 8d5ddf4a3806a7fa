// Recording: descriptor sets, barriers, labels, timestamps, and the division into segments.
// - Barriers. Each command says which bytes of which buffers it reads and writes; the shader's readonly and writeonly tell it.
//   Hazards compares these with the commands since the last barrier, and a barrier comes before a command that conflicts. It
//   names copies only if they are concerned. Commands that do not conflict, such as the products of q, k and v, run at the same
//   time.
// - Segments. A recording is divided if its predicted time exceeds 0.1 s on a slow device of its type, because drivers reset a
//   device that is busy for too long. Two segments are in flight at a time, so the device never waits for the host, and a run can
//   be stopped between segments.
// - Several recordings. Commands::run_all submits them one after the other, without waiting in between if each is one segment.
//   One that is submitted several times (a token that the device samples) is recorded with Again::at_any_time. Barriers at the
//   beginning of a recording order it behind the one before. The host reads nothing of such a recording, so it does not end with
//   a barrier.
// - Timed recordings have a barrier before each command, so that no command is charged for its neighbours.
#include "runtime/recorder.h"
#include "base/ensure.h"
#include "runtime/commands.h"
#include "runtime/dispatch_watch.h"
#include "runtime/hazards.h"
#include <algorithm>
#include <array>
#include <set>

namespace tq {
namespace {

constexpr uint32_t sets_per_pool = 256, descriptors_per_pool = 2048;
constexpr double segment_seconds = 0.1;

// Returns seconds that `work` is unlikely to exceed. Drivers reset a device that is busy for too long (some after 2 s), and
// stopping an answer should not take long, so the rates are those of slow devices of each type.
double predicted_seconds(const Work& work, DeviceType type) {
    struct Rate {
        double bytes, flops; // per second
    };
    Rate rate{3e9, 5e9}; // lavapipe or SwiftShader on a small processor, and unknown devices
    if (type == DeviceType::integrated || type == DeviceType::virtual_gpu) rate = {30e9, 300e9};
    if (type == DeviceType::discrete) rate = {200e9, 3e12};
    const double launch_seconds = 5e-6;
    return launch_seconds + std::max(double(work.bytes) / rate.bytes, double(work.flops) / rate.flops);
}

Access access(const View& view, bool reads, bool writes) {
    return {&view.buffer->impl(), view.offset, view.offset + view.bytes, reads, writes};
}

} // namespace

struct Recorder::Impl {
    std::unique_ptr<Commands::Impl> out;
    Device::Impl& device;
    const bool timed;
    const Again again;
    VkCommandBuffer commands{}; // the open segment
    Hazards hazards;
    uint32_t barriers = 0, stamps_taken = 0;
    uint32_t sets_left = 0, descriptors_left = 0; // in the newest pool
    double segment_prediction = 0;                // seconds
    std::vector<std::string> labels;              // the open ones, outermost first

    explicit Impl(Device& on, Again again = Again::after_it_ran)
        : out(std::make_unique<Commands::Impl>(on.impl())), device(on.impl()),
          timed(on.profile && on.capabilities().timestamp_ns > 0), again(again) {}

    void open_segment();
    void close_segment();
    void label(const char* text) const;
    void unlabel() const;
    void stamp();
    VkBufferView texel_view(const View& view);
    VkDescriptorSet descriptor_set(VkDescriptorSetLayout layout, const Interface& interface, std::span<const View> views);
    void add_descriptor_pool();
    void wait(VkPipelineStageFlags from, VkPipelineStageFlags to) const;
    template <class Record>
    void command(const char* name, CommandKind kind, const Work& work, std::span<const Access> accesses, Record record);
};

// Labels that are open at the end of a segment are closed there and opened again in the next, so that each command buffer closes
// what it opens.
void Recorder::Impl::open_segment() {
    commands = allocate_commands(device.handle, out->pool);
    out->segments.push_back(commands);
    begin_commands(commands, again == Again::at_any_time ? VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT : 0);
    segment_prediction = 0;
    for (const std::string& text : labels) label(text.c_str());
}

void Recorder::Impl::close_segment() {
    for (size_t i = 0; i < labels.size(); i++) unlabel();
    end_commands(commands);
}

void Recorder::Impl::label(const char* text) const {
    const VkDebugUtilsLabelEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT, nullptr, text, {}};
    if (device.instance->debug_utils()) vkCmdBeginDebugUtilsLabelEXT(commands, &info);
}

void Recorder::Impl::unlabel() const {
    if (device.instance->debug_utils()) vkCmdEndDebugUtilsLabelEXT(commands);
}

// Writes a timestamp, before and after each timed command: at the bottom of the pipe, when everything before has finished.
void Recorder::Impl::stamp() {
    const uint32_t next = stamps_taken % stamps_per_pool;
    if (next == 0) {
        const VkQueryPoolCreateInfo info{.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                         .pNext = nullptr,
                                         .flags = 0,
                                         .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                         .queryCount = stamps_per_pool,
                                         .pipelineStatistics = 0};
        VkQueryPool pool;
        check(vkCreateQueryPool(device.handle, &info, nullptr, &pool), "creating a query pool");
        out->queries.emplace_back(device.handle, pool);
        vkCmdResetQueryPool(commands, pool, 0, stamps_per_pool);
    }
    vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, out->queries.back(), next);
    stamps_taken++;
}

void Recorder::Impl::wait(VkPipelineStageFlags from, VkPipelineStageFlags to) const {
    barrier(commands, from, to, device.barrier_form());
}

// Records any command. Timed commands are separated by barriers, or each would be charged for its neighbours.
template <class Record> void Recorder::Impl::command(const char* name, CommandKind kind, const Work& work,
                                                     std::span<const Access> accesses, Record record) {
    const double seconds = predicted_seconds(work, device.capabilities.type);
    if (segment_prediction > 0 && segment_prediction + seconds > segment_seconds) {
        close_segment();
        open_segment();
    }
    segment_prediction += seconds;

    const auto needed = hazards.add(accesses, kind);
    barriers += needed.has_value();
    if (timed)
        wait(work_stages, work_stages);
    else if (needed)
        wait(needed->copies_before ? work_stages : kernel_stage, needed->copies_after ? work_stages : kernel_stage);
    label(name);
    if (timed) stamp();
    record();
    if (timed) {
        stamp();
        out->stamps.push_back({name, work});
    }
    unlabel();
}

void Recorder::Impl::add_descriptor_pool() {
    const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, descriptors_per_pool},
                                          {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, descriptors_per_pool}};
    const VkDescriptorPoolCreateInfo info{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                          .pNext = nullptr,
                                          .flags = 0,
                                          .maxSets = sets_per_pool,
                                          .poolSizeCount = uint32_t(std::size(sizes)),
                                          .pPoolSizes = sizes};
    VkDescriptorPool pool;
    check(vkCreateDescriptorPool(device.handle, &info, nullptr, &pool), "creating a descriptor pool");
    out->descriptors.emplace_back(device.handle, pool);
    sets_left = sets_per_pool;
    descriptors_left = descriptors_per_pool;
}

// Returns a view with 16 bytes a texel: one of the formats that every device has for texel buffers.
VkBufferView Recorder::Impl::texel_view(const View& view) {
    const VkBufferViewCreateInfo info{.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
                                      .pNext = nullptr,
                                      .flags = 0,
                                      .buffer = view.buffer->impl().handle,
                                      .format = VK_FORMAT_R32G32B32A32_UINT,
                                      .offset = view.offset,
                                      .range = view.bytes};
    VkBufferView handle;
    check(vkCreateBufferView(device.handle, &info, nullptr, &handle), "creating a view of a buffer");
    out->texel_views.emplace_back(device.handle, handle);
    return handle;
}

// Sets are taken from pools of fixed size and never freed alone: they live as long as the recording, and a new pool is added when
// one is used up.
VkDescriptorSet Recorder::Impl::descriptor_set(VkDescriptorSetLayout layout, const Interface& interface,
                                               std::span<const View> views) {
    const uint32_t count = uint32_t(views.size());
    if (sets_left == 0 || descriptors_left < count) add_descriptor_pool();
    sets_left--;
    descriptors_left -= count;
    const VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, out->descriptors.back(), 1,
                                           &layout};
    VkDescriptorSet set;
    check(vkAllocateDescriptorSets(device.handle, &info, &set), "allocating a descriptor set");

    std::array<VkDescriptorBufferInfo, max_bindings> buffers;
    std::array<VkBufferView, max_bindings> texels;
    std::array<VkWriteDescriptorSet, max_bindings> writes;
    for (uint32_t i = 0; i < count; i++) {
        buffers[i] = {views[i].buffer->impl().handle, views[i].offset, views[i].bytes};
        if (interface.texels >> i & 1) texels[i] = texel_view(views[i]);
        writes[i] = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                     .pNext = nullptr,
                     .dstSet = set,
                     .dstBinding = i,
                     .dstArrayElement = 0,
                     .descriptorCount = 1,
                     .descriptorType = descriptor_type(interface, i),
                     .pImageInfo = nullptr,
                     .pBufferInfo = &buffers[i],
                     .pTexelBufferView = &texels[i]};
    }
    vkUpdateDescriptorSets(device.handle, count, writes.data(), 0, nullptr);
    return set;
}

Recorder::Recorder(Device& device, Again again) : impl_(std::make_unique<Impl>(device, again)) {
    impl_->open_segment();
    impl_->wait(work_stages, work_stages); // for all earlier commands; the host's writes are visible since the submission
}

struct Recorder::Listing {
    std::vector<Variant> variants;
    std::set<Variant> seen;
};

Recorder::Recorder(Listing& listing) : listing_(&listing) {}

Recorder::~Recorder() = default;

std::vector<Variant> Recorder::list(const std::function<void(Recorder&)>& body) {
    Listing listing;
    Recorder recorder(listing);
    body(recorder);
    return std::move(listing.variants);
}

void Recorder::prepare(Device& device, const std::function<void(Recorder&)>& body) {
    Pipelines& pipelines = *device.impl().pipelines;
    std::vector<PipelineKey> requested;
    for (const Variant& variant : list(body)) requested.push_back(pipelines.key(*variant.shader, variant.constants));
    pipelines.build_missing(requested);
}

// Limits are checked here (ENSURE) and not left to the driver, which need not notice: a binding beyond its range reads zeros on
// one device and the neighbour's bytes on another.
void Recorder::record(const AnyShader& shader, Groups groups, std::span<const uint32_t> constants,
                      std::span<const std::byte> push, const Work& work, std::span<const View> views) {
    if (listing_ != nullptr) {
        Variant variant{&shader, {constants.begin(), constants.end()}};
        if (listing_->seen.insert(variant).second) listing_->variants.push_back(std::move(variant));
        return;
    }
    ENSURE(impl_->out, "{} recorded after finish()", shader.name);
    tell_watch({shader, groups, constants, push, views});
    const Capabilities& device = impl_->device.capabilities;
    const auto& limit = device.max_workgroup_count;
    ENSURE(groups.x <= limit[0] && groups.y <= limit[1] && groups.z <= limit[2], "{}: {} x {} x {} workgroups", shader.name,
           groups.x, groups.y, groups.z);
    std::array<Access, max_bindings> accesses;
    for (size_t i = 0; i < views.size(); i++) {
        ENSURE(views[i].offset % device.storage_alignment == 0, "{}: buffer {} at {}, alignment {}", shader.name, i,
               views[i].offset, device.storage_alignment);
        ENSURE(views[i].bytes <= device.storage_range_bytes, "{}: buffer {} of {} bytes, range {}", shader.name, i,
               views[i].bytes, device.storage_range_bytes);
        if (shader.interface.texels >> i & 1)
            ENSURE(views[i].bytes % 16 == 0 && views[i].bytes <= device.texel_range_bytes,
                   "{}: buffer {} of {} bytes, texels of {}", shader.name, i, views[i].bytes, device.texel_range_bytes);
        accesses[i] = access(views[i], shader.interface.reads >> i & 1, shader.interface.writes >> i & 1);
    }
    const Pipeline& pipeline = impl_->device.pipelines->get(shader, constants);
    const VkDescriptorSet set = impl_->descriptor_set(pipeline.set, shader.interface, views);
    impl_->command(shader.name, CommandKind::kernel, work, std::span(accesses).first(views.size()), [&] {
        const VkCommandBuffer commands = impl_->commands;
        vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle);
        vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout, 0, 1, &set, 0, nullptr);
        if (!push.empty())
            vkCmdPushConstants(commands, pipeline.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, uint32_t(push.size()), push.data());
        vkCmdDispatch(commands, groups.x, groups.y, groups.z);
    });
}

void Recorder::copy(View dst, View src) {
    if (listing_ != nullptr) return;
    ENSURE(impl_->out, "copy recorded after finish()");
    ENSURE(dst.bytes == src.bytes, "{} bytes into {}", src.bytes, dst.bytes);
    ENSURE(dst.buffer != src.buffer || dst.offset + dst.bytes <= src.offset || src.offset + src.bytes <= dst.offset,
           "{} bytes from {} to {} of one buffer overlap", src.bytes, src.offset, dst.offset);
    const Access accesses[] = {access(dst, false, true), access(src, true, false)};
    impl_->command("copy", CommandKind::copy, {2 * src.bytes, 0}, accesses, [&] {
        const VkBufferCopy region{src.offset, dst.offset, src.bytes};
        vkCmdCopyBuffer(impl_->commands, src.buffer->impl().handle, dst.buffer->impl().handle, 1, &region);
    });
}

void Recorder::begin_label(std::string label) {
    if (listing_ != nullptr) return;
    impl_->label(label.c_str());
    impl_->labels.push_back(std::move(label));
}

void Recorder::end_label() {
    if (listing_ != nullptr) return;
    ENSURE(!impl_->labels.empty(), "no label is open");
    impl_->unlabel();
    impl_->labels.pop_back();
}

uint32_t Recorder::barriers() const {
    ENSURE(listing_ == nullptr, "nothing is recorded");
    return impl_->barriers;
}

Commands Recorder::finish() {
    ENSURE(listing_ == nullptr, "nothing is recorded");
    ENSURE(impl_->out, "finish() called twice");
    if (impl_->again != Again::at_any_time) impl_->wait(work_stages, host_stage); // the host may read once run() returns
    impl_->close_segment();
    impl_->device.pipelines->save();
    return Commands(std::move(impl_->out));
}

} // namespace tq
