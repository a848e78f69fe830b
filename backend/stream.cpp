// The backend instance: asynchronous transfers, events and graphs, all on one queue and so in the order they were given.
#include "stream.h"

#include <cstring>

#include "buffer.h"
#include "plan/fusion.h"
#include "plan/runner.h"
#include "runtime/queue.h"

namespace strata {

namespace {

struct backend_context {
    explicit backend_context(gpu & target) : work(target), runner(work, settings::from_environment()) {}

    queue work;
    plan_runner runner;  // its memory is freed before the queue ends
};

backend_context & of(ggml_backend_t backend) {
    return *static_cast<backend_context *>(backend->context);
}

hipEvent_t of(ggml_backend_event_t event) {
    return static_cast<hipEvent_t>(event->context);
}

char * at(const ggml_tensor * tensor, std::size_t offset) {
    return static_cast<char *>(tensor->data) + offset;
}

/// A step of work in a function that cannot return an error: reported, and visible as a false result.
template <class Body>
bool done(ggml_backend_t backend, Body && body) {
    return guarded([&] {
        of(backend).work.device.activate();
        body(of(backend).work);
    }) == GGML_STATUS_SUCCESS;
}

const char * get_name(ggml_backend_t backend) {
    return of(backend).work.device.name.c_str();
}

void free_backend(ggml_backend_t backend) {
    delete &of(backend);
    delete backend;
}

void set_tensor_async(ggml_backend_t backend, ggml_tensor * tensor, const void * data, std::size_t offset, std::size_t size) {
    done(backend, [&](queue & work) { work.upload(at(tensor, offset), data, size); });
}

void get_tensor_async(ggml_backend_t backend, const ggml_tensor * tensor, void * data, std::size_t offset, std::size_t size) {
    if (!done(backend, [&](queue & work) { work.download_async(data, at(tensor, offset), size); })) {
        std::memset(data, 0xff, size);  // not a number: a failed read must not look like a result
    }
}

void set_tensor_2d_async(ggml_backend_t backend, ggml_tensor * tensor, const void * data, std::size_t offset, std::size_t size,
        std::size_t rows, std::size_t stride_tensor, std::size_t stride_data) {
    done(backend, [&](queue & work) { work.upload_2d(at(tensor, offset), stride_tensor, data, stride_data, size, rows); });
}

void get_tensor_2d_async(ggml_backend_t backend, const ggml_tensor * tensor, void * data, std::size_t offset, std::size_t size,
        std::size_t rows, std::size_t stride_tensor, std::size_t stride_data) {
    const bool given = done(backend,
        [&](queue & work) { work.download_2d_async(data, stride_data, at(tensor, offset), stride_tensor, size, rows); });
    for (std::size_t row = 0; !given && row < rows; ++row) {
        std::memset(static_cast<char *>(data) + row * stride_data, 0xff, size);
    }
}

/// Between instances of this device the copy waits for both, and both wait for the copy.
bool cpy_tensor_async(ggml_backend_t from, ggml_backend_t to, const ggml_tensor * src, ggml_tensor * dst) {
    if (from->iface.get_name != get_name || to->iface.get_name != get_name) {
        return false;
    }
    queue & source = of(from).work;
    queue & target = of(to).work;
    const ggml_backend_buffer_t src_buffer = src->view_src ? src->view_src->buffer : src->buffer;
    const ggml_backend_buffer_t dst_buffer = dst->view_src ? dst->view_src->buffer : dst->buffer;
    if (&source.device != &target.device || !is_buffer_of(source.device, src_buffer) || !is_buffer_of(source.device, dst_buffer)) {
        return false;
    }
    return done(to, [&](queue &) {
        if (&source != &target) {
            target.wait_for(source);
        }
        target.copy(dst->data, src->data, ggml_nbytes(src));
        if (&source != &target) {
            source.wait_for(target);
        }
    });
}

void synchronize(ggml_backend_t backend) {
    done(backend, [](queue & work) {
        if (!work.failed()) {  // a failure is reported once; later graphs and reads say that they cannot go on
            work.synchronize();
        }
    });
}

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    return guarded([&] {
        of(backend).work.device.activate();
        of(backend).runner.run(graph);
    });
}

/// Keeps the operands of fusions until these run, so that the allocator does not give their memory to a result, or to a node between.
void graph_optimize(ggml_backend_t backend, ggml_cgraph * graph, ggml_backend_graph_optimize_params * params) {
    guarded([&] {
        const fusion_target target = {of(backend).work.device.caps, of(backend).runner.switches()};
        for (const fusion_match & match : find_fusions(target, graph, fusion_stage::optimize)) {
            for (const ggml_tensor * each : match.operands) {
                if (each != nullptr && owner_of(each)->buffer == nullptr) {  // weights and caches have their own for good
                    params->add_alloc_dep(params->user_data, const_cast<ggml_tensor *>(each), graph->nodes[match.place()]);
                }
            }
        }
    });
}

void event_record(ggml_backend_t backend, ggml_backend_event_t event) {
    done(backend, [&](queue & work) { work.device.check(work.device.hip.hipEventRecord(of(event), work.stream), "hipEventRecord"); });
}

void event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    done(backend, [&](queue & work) {
        const hipError_t error = work.device.hip.hipStreamWaitEvent(work.stream, of(event), 0);
        work.submitted();
        work.device.check(error, "hipStreamWaitEvent");
    });
}

const ggml_backend_i backend_interface = {
    /* .get_name            = */ get_name,
    /* .free                = */ free_backend,
    /* .set_tensor_async    = */ set_tensor_async,
    /* .get_tensor_async    = */ get_tensor_async,
    /* .set_tensor_2d_async = */ set_tensor_2d_async,
    /* .get_tensor_2d_async = */ get_tensor_2d_async,
    /* .cpy_tensor_async    = */ cpy_tensor_async,
    /* .synchronize         = */ synchronize,
    /* .graph_plan_create   = */ nullptr,
    /* .graph_plan_free     = */ nullptr,
    /* .graph_plan_update   = */ nullptr,
    /* .graph_plan_compute  = */ nullptr,
    /* .graph_compute       = */ graph_compute,
    /* .event_record        = */ event_record,
    /* .event_wait          = */ event_wait,
    /* .graph_optimize      = */ graph_optimize,
};

ggml_guid_t guid() {
    static ggml_guid id = {0x73, 0x74, 0x72, 0x61, 0x74, 0x61, 0x2d, 0x68, 0x69, 0x70, 0x00, 0x67, 0x67, 0x6d, 0x6c, 0x02};
    return &id;
}

}  // namespace

ggml_backend_t make_backend(gpu & target, ggml_backend_dev_t owner) {
    ggml_backend_t backend = nullptr;
    guarded([&] {
        target.activate();
        auto context = std::make_unique<backend_context>(target);
        backend = new ggml_backend{guid(), backend_interface, owner, context.get()};
        context.release();
    });
    return backend;
}

ggml_backend_event_t make_event(gpu & target, ggml_backend_dev_t owner) {
    ggml_backend_event_t event = nullptr;
    guarded([&] {
        target.activate();
        hipEvent_t made = nullptr;
        target.check(target.hip.hipEventCreateWithFlags(&made, hipEventDisableTiming), "hipEventCreateWithFlags");
        event = new ggml_backend_event{owner, made};
    });
    return event;
}

void free_event(gpu & target, ggml_backend_event_t event) {
    guarded([&] {
        target.activate();
        target.check(target.hip.hipEventDestroy(of(event)), "hipEventDestroy");
    });
    delete event;
}

void synchronize_event(gpu & target, ggml_backend_event_t event) {
    guarded([&] {
        target.activate();
        target.check(target.hip.hipEventSynchronize(of(event)), "hipEventSynchronize");
    });
}

}  // namespace strata
