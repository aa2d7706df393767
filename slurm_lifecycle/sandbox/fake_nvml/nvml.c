/*
 * A stand-in for libnvidia-ml.so.1 on machines without a GPU.
 *
 * Exports the part of the NVML interface that health checks and inventories use, and answers from a small text
 * file named by SLC_FAKE_NVML_STATE. The file is read again on each call, so a test or an operator changes the
 * "hardware" while programs run. Missing key = healthy default. Keys:
 *
 *   gpus=8  name=TEXT  driver=TEXT  init=CODE  hang=0|1  hang_file=PATH
 *   gpu.N.<field>=VALUE with: uuid serial bus name absent lost reset_required recovery_action ecc_unc_volatile
 *     ecc_unc_aggregate ecc_corr_volatile ecc_corr_aggregate remap_corr remap_unc remap_pending remap_failure
 *     sram_threshold inforom temperature
 *   ret.<call>=CODE and gpu.N.ret.<call>=CODE: what one call returns in place of an answer; <call> is one of
 *     uuid serial name pci ecc sram remap histogram inforom temperature fields recovery
 *
 * hang=1 stops every call after the initialisation for ever. With hang_file the call writes to that file first:
 * on a frozen file system this is a true uninterruptible sleep, which a signal does not end.
 *
 * The few structures are declared here from their public binary layout (64-bit Linux).
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
    FUNCTION_NOT_FOUND = 13, CORRUPTED_INFOROM = 14, GPU_IS_LOST = 15, RESET_REQUIRED = 16
};
enum { MAX_GPUS = 64, STATE_BYTES = 65536, FIELD_RECOVERY_ACTION = 230, VALUE_TYPE_UINT = 1 };

typedef struct { int index; } device;
typedef device *device_t;

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, dev, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

typedef union { double d; unsigned int ui; unsigned long long ull; int i; } value_t;

typedef struct {
    uint32_t field_id, scope_id;
    int64_t timestamp, latency_us;
    int value_type, result;
    value_t value;
} field_value;

typedef struct {
    unsigned int version;
    unsigned long long counters[11];
    unsigned int threshold_exceeded;
} sram_status;

typedef struct { unsigned int max, high, partial, low, none; } remap_histogram;

static device devices[MAX_GPUS];
static int initialised;

/* ---- the state file ---------------------------------------------------------------------------------- */

static const char *state_path(void) {
    const char *path = getenv("SLC_FAKE_NVML_STATE");
    return path ? path : "";
}

/* Copies the value of `key` to `out`; returns 1 where it is set. A later line wins. */
static int lookup(const char *key, char *out, size_t size) {
    static __thread char text[STATE_BYTES];
    size_t key_length = strlen(key);
    int found = 0, fd = open(state_path(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t used = 0, got;
    while (used < STATE_BYTES - 1 && (got = read(fd, text + used, STATE_BYTES - 1 - (size_t)used)) > 0) used += got;
    close(fd);
    text[used] = '\0';
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strncmp(line, key, key_length) == 0 && line[key_length] == '=') {
            snprintf(out, size, "%s", line + key_length + 1);
            found = 1;
        }
    }
    return found;
}

static long long number(const char *key, long long fallback) {
    char text[64];
    return lookup(key, text, sizeof text) && text[0] ? strtoll(text, NULL, 0) : fallback;
}

static int gpu_text(int index, const char *field, char *out, size_t size) {
    char key[96];
    snprintf(key, sizeof key, "gpu.%d.%s", index, field);
    return lookup(key, out, size);
}

static long long gpu_number(int index, const char *field, long long fallback) {
    char key[96];
    snprintf(key, sizeof key, "gpu.%d.%s", index, field);
    return number(key, fallback);
}

/* Differs from node to node, so that emulated nodes do not share serial numbers. */
static uint32_t node_salt(void) {
    uint32_t hash = 2166136261u;
    for (const char *c = state_path(); *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash;
}

static int configured_gpus(void) {
    long long count = number("gpus", 8);
    return count < 0 ? 0 : count > MAX_GPUS ? MAX_GPUS : (int)count;
}

static int answering_or_hang(void) {
    char path[512];
    if (!initialised) return UNINITIALIZED;
    if (number("hang", 0) == 0) return OK;
    if (lookup("hang_file", path, sizeof path) && path[0]) {
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd >= 0 && write(fd, "x", 1) < 0) { /* nothing to do: the hang below follows */ }
    }
    for (;;) pause();
}

/* The code that a call on one device returns instead of an answer, or OK. */
static int device_fault(device_t handle, const char *call) {
    char key[96];
    int code = answering_or_hang();
    if (code != OK) return code;
    if (handle < devices || handle >= devices + MAX_GPUS) return INVALID_ARGUMENT;
    if (gpu_number(handle->index, "lost", 0)) return GPU_IS_LOST;
    if (gpu_number(handle->index, "reset_required", 0)) return RESET_REQUIRED;
    snprintf(key, sizeof key, "ret.%s", call);
    return (int)gpu_number(handle->index, key, number(key, OK));
}

static int put(char *out, unsigned int size, const char *text) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(out, text);
    return OK;
}

static void bus_id_of(int index, char *out, size_t size) {
    unsigned int bus = index < 15 ? 0x10u * (unsigned)(index + 1) : 0x11u + (unsigned)index;
    if (!gpu_text(index, "bus", out, size)) snprintf(out, size, "00000000:%02X:00.0", bus);
}

static void uuid_of(int index, char *out, size_t size) {
    if (!gpu_text(index, "uuid", out, size))
        snprintf(out, size, "GPU-%08x-5c1f-4000-8000-%012x", node_salt(), (unsigned)index + 1);
}

/* ---- library ------------------------------------------------------------------------------------------ */

API int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    int code = (int)number("init", OK);
    if (code == OK) initialised = 1;
    return code;
}

API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API int nvmlInit(void) { return nvmlInitWithFlags(0); }

API int nvmlShutdown(void) {
    int code = answering_or_hang();
    initialised = 0;
    return code;
}

API const char *nvmlErrorString(int code) {
    static const char *const words[] = {"success", "not initialised", "invalid argument", "not supported"};
    return code >= 0 && code < 4 ? words[code] : "error";
}

API int nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    char text[96] = "580.00.00";
    int code = answering_or_hang();
    if (code != OK) return code;
    lookup("driver", text, sizeof text);
    return put(out, size, text);
}

API int nvmlSystemGetNVMLVersion(char *out, unsigned int size) {
    int code = answering_or_hang();
    return code != OK ? code : put(out, size, "13.580.00.00");
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    int code = answering_or_hang();
    if (code == OK) *version = 13000;
    return code;
}

/* ---- finding devices ---------------------------------------------------------------------------------- */

API int nvmlDeviceGetCount_v2(unsigned int *count) {
    int code = answering_or_hang();
    if (code != OK) return code;
    *count = 0;
    for (int i = 0; i < configured_gpus(); i++) *count += gpu_number(i, "absent", 0) == 0;
    return OK;
}

static int open_device(int index, device_t *out) {
    devices[index].index = index;
    *out = &devices[index];
    return gpu_number(index, "lost", 0) ? GPU_IS_LOST : OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned int wanted, device_t *out) {
    int code = answering_or_hang();
    if (code != OK) return code;
    for (int i = 0, seen = 0; i < configured_gpus(); i++) {
        if (gpu_number(i, "absent", 0)) continue;
        if ((unsigned)seen++ == wanted) return open_device(i, out);
    }
    return INVALID_ARGUMENT;
}

static int find_device(const char *wanted, void (*identity)(int, char *, size_t), device_t *out) {
    char text[96];
    int code = answering_or_hang();
    if (code != OK) return code;
    for (int i = 0; i < configured_gpus(); i++) {
        identity(i, text, sizeof text);
        if (gpu_number(i, "absent", 0) == 0 && strcasecmp(text, wanted) == 0) return open_device(i, out);
    }
    return NOT_FOUND;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, device_t *out) {
    return find_device(bus_id, bus_id_of, out);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *out) { return find_device(uuid, uuid_of, out); }

API int nvmlDeviceGetIndex(device_t handle, unsigned int *index) {
    int code = device_fault(handle, "index");
    if (code != OK) return code;
    *index = 0;
    for (int i = 0; i < handle->index; i++) *index += gpu_number(i, "absent", 0) == 0;
    return OK;
}

API int nvmlDeviceGetMinorNumber(device_t handle, unsigned int *minor) {
    int code = device_fault(handle, "minor");
    if (code == OK) *minor = (unsigned)handle->index;
    return code;
}

/* ---- identity ----------------------------------------------------------------------------------------- */

API int nvmlDeviceGetName(device_t handle, char *out, unsigned int size) {
    char text[96] = "NVIDIA H100 80GB HBM3";
    int code = device_fault(handle, "name");
    if (code != OK) return code;
    lookup("name", text, sizeof text);
    gpu_text(handle->index, "name", text, sizeof text);
    return put(out, size, text);
}

API int nvmlDeviceGetUUID(device_t handle, char *out, unsigned int size) {
    char text[96];
    int code = device_fault(handle, "uuid");
    if (code != OK) return code;
    uuid_of(handle->index, text, sizeof text);
    return put(out, size, text);
}

API int nvmlDeviceGetSerial(device_t handle, char *out, unsigned int size) {
    char text[96];
    int code = device_fault(handle, "serial");
    if (code != OK) return code;
    if (!gpu_text(handle->index, "serial", text, sizeof text))
        snprintf(text, sizeof text, "165%08u%02d", node_salt() % 100000000u, handle->index);
    return put(out, size, text);
}

API int nvmlDeviceGetPciInfo_v3(device_t handle, pci_info *info) {
    int code = device_fault(handle, "pci");
    if (code != OK) return code;
    memset(info, 0, sizeof *info);
    bus_id_of(handle->index, info->bus_id, sizeof info->bus_id);
    sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->dev);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xffffu,
             info->bus & 0xffu, info->dev & 0xffu);
    info->pci_device_id = 0x233010deu;
    return OK;
}

/* ---- health ------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetFieldValues(device_t handle, int count, field_value *values) {
    int code = device_fault(handle, "fields");
    if (code != OK) return code;
    for (int i = 0; i < count; i++) {
        values[i].result = NOT_SUPPORTED;
        if (values[i].field_id != FIELD_RECOVERY_ACTION) continue;
        values[i].result = device_fault(handle, "recovery");
        values[i].value_type = VALUE_TYPE_UINT;
        values[i].value.ull = 0;
        values[i].value.ui = (unsigned)gpu_number(handle->index, "recovery_action", 0);
    }
    return OK;
}

API int nvmlDeviceGetEccMode(device_t handle, int *current, int *pending) {
    int code = device_fault(handle, "ecc");
    if (code == OK) *current = *pending = 1;
    return code;
}

API int nvmlDeviceGetTotalEccErrors(device_t handle, int error_type, int counter_type, unsigned long long *out) {
    char field[40];
    int code = device_fault(handle, "ecc");
    if (code != OK) return code;
    snprintf(field, sizeof field, "ecc_%s_%s", error_type == 1 ? "unc" : "corr",
             counter_type == 0 ? "volatile" : "aggregate");
    *out = (unsigned long long)gpu_number(handle->index, field, 0);
    return OK;
}

API int nvmlDeviceGetSramEccErrorStatus(device_t handle, sram_status *status) {
    int code = device_fault(handle, "sram");
    if (code != OK) return code;
    memset(status->counters, 0, sizeof status->counters);
    status->threshold_exceeded = gpu_number(handle->index, "sram_threshold", 0) != 0;
    return OK;
}

API int nvmlDeviceGetRemappedRows(device_t handle, unsigned int *corrected, unsigned int *uncorrected,
                                  unsigned int *pending, unsigned int *failure) {
    int code = device_fault(handle, "remap");
    if (code != OK) return code;
    *corrected = (unsigned)gpu_number(handle->index, "remap_corr", 0);
    *uncorrected = (unsigned)gpu_number(handle->index, "remap_unc", 0);
    *pending = gpu_number(handle->index, "remap_pending", 0) != 0;
    *failure = gpu_number(handle->index, "remap_failure", 0) != 0;
    return OK;
}

API int nvmlDeviceGetRowRemapperHistogram(device_t handle, remap_histogram *out) {
    int code = device_fault(handle, "histogram");
    if (code != OK) return code;
    memset(out, 0, sizeof *out);
    out->max = 640;
    return OK;
}

API int nvmlDeviceValidateInforom(device_t handle) {
    int code = device_fault(handle, "inforom");
    if (code != OK) return code;
    return gpu_number(handle->index, "inforom", 0) ? CORRUPTED_INFOROM : OK;
}

API int nvmlDeviceGetTemperature(device_t handle, int sensor, unsigned int *out) {
    (void)sensor;
    int code = device_fault(handle, "temperature");
    if (code == OK) *out = (unsigned)gpu_number(handle->index, "temperature", 35);
    return code;
}

API int nvmlDeviceGetPersistenceMode(device_t handle, int *mode) {
    int code = device_fault(handle, "persistence");
    if (code == OK) *mode = 1;
    return code;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(device_t handle, unsigned int *count, void *infos) {
    (void)infos;
    int code = device_fault(handle, "processes");
    if (code == OK) *count = 0;
    return code;
}
