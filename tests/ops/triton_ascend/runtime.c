/* What code made from MLIR calls: on-chip buffers and copies. Buffers come from one arena that is
 * emptied before each program and are filled with 0xff: NaN as a float, -1 as an integer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES ((size_t)1 << 33)
#define ALIGNMENT 64

typedef struct {
  int64_t rank;
  void *descriptor;
} unranked_memref;

typedef struct {
  char *allocated;
  char *aligned;
  int64_t offset;
  int64_t sizes_and_strides[];
} memref;

static char *arena;
static size_t used;

void ta_begin_program(void) {
  used = 0;
}

void *_mlir_memref_to_llvm_alloc(size_t size) {
  if (arena == NULL) {
    arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (arena == MAP_FAILED || used + size > ARENA_BYTES) {
    fprintf(stderr, "no room for a buffer of %zu bytes\n", size);
    abort();
  }
  char *buffer = arena + used;
  used += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return memset(buffer, 0xff, size);
}

void *_mlir_memref_to_llvm_aligned_alloc(size_t alignment, size_t size) {
  (void)alignment;
  return _mlir_memref_to_llvm_alloc(size);
}

void _mlir_memref_to_llvm_free(void *buffer) {
  (void)buffer;
}

static void copy(int64_t rank, int64_t element, const int64_t *sizes, char *to,
                 const int64_t *to_strides, const char *from, const int64_t *from_strides) {
  if (rank == 0) {
    memcpy(to, from, element);
    return;
  }
  for (int64_t i = 0; i < sizes[0]; i++)
    copy(rank - 1, element, sizes + 1, to + i * to_strides[0] * element, to_strides + 1,
         from + i * from_strides[0] * element, from_strides + 1);
}

void memrefCopy(int64_t element, unranked_memref *from, unranked_memref *to) {
  memref *source = from->descriptor, *target = to->descriptor;
  int64_t rank = from->rank, *sizes = source->sizes_and_strides;
  copy(rank, element, sizes, target->aligned + target->offset * element,
       target->sizes_and_strides + rank, source->aligned + source->offset * element, sizes + rank);
}
