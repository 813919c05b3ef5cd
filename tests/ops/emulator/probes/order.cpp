// The order of a core's four pipes: flags, barriers, queues.
#include "probe.h"

// Two steps that meet in `a`, with the event between them or without.
#define ORDER_PROBE(Event, First, Second)   \
  PROBE(order_##Event, {                    \
    p.fill();                               \
    First;                                  \
    if (!wrong) p.sync<HardEvent::Event>(); \
    Second;                                 \
  })

ORDER_PROBE(MTE2_V, DataCopy(p.a, p.in, kTile), Adds(p.b, p.a, 1.0f, kTile))
ORDER_PROBE(MTE2_S, DataCopy(p.a, p.in, kTile), p.a.GetValue(0))
ORDER_PROBE(MTE2_MTE3, DataCopy(p.a, p.in, kTile), DataCopy(p.io, p.a, kTile))
ORDER_PROBE(V_S, Duplicate(p.a, 2.0f, kTile), p.a.GetValue(0))
ORDER_PROBE(V_MTE2, Adds(p.b, p.a, 1.0f, kTile), DataCopy(p.a, p.in, kTile))
ORDER_PROBE(V_MTE3, Duplicate(p.a, 2.0f, kTile), DataCopy(p.io, p.a, kTile))
ORDER_PROBE(S_V, p.a.SetValue(0, 2.0f), Adds(p.b, p.a, 1.0f, kTile))
ORDER_PROBE(S_MTE2, p.a.GetValue(0), DataCopy(p.a, p.in, kTile))
ORDER_PROBE(S_MTE3, p.a.SetValue(0, 2.0f), DataCopy(p.io, p.a, kTile))
ORDER_PROBE(MTE3_V, DataCopy(p.io, p.a, kTile), Duplicate(p.a, 2.0f, kTile))
ORDER_PROBE(MTE3_S, DataCopy(p.io, p.a, kTile), p.a.SetValue(0, 2.0f))
ORDER_PROBE(MTE3_MTE2, DataCopy(p.io, p.a, kTile), DataCopy(p.a, p.in, kTile))

PROBE(order_wrong_event, {  // an order, but not this one
  DataCopy(p.a, p.in, kTile);
  p.sync<HardEvent::MTE2_V>();
  if (!wrong) p.sync<HardEvent::V_S>();
  p.a.GetValue(0);
})

PROBE(order_chain, {  // MTE2 to V to MTE3 orders MTE2 and MTE3, too
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  DataCopy(t, p.io, kTile);
  p.inputs.EnQue(t);
  t = p.inputs.DeQue<float>();
  LocalTensor<float> o = p.outputs.AllocTensor<float>();
  if (wrong) {
    Duplicate(o, 1.0f, kTile);
  } else {
    Adds(o, t, 1.0f, kTile);
  }
  p.outputs.EnQue(o);
  o = p.outputs.DeQue<float>();
  DataCopy(p.io, o, kTile);
  p.outputs.FreeTensor(o);
  p.inputs.FreeTensor(t);
  if (wrong) {  // reads what the copy before may still be writing
    t = p.inputs.AllocTensor<float>();
    DataCopy(t, p.io, kTile);
    p.inputs.FreeTensor(t);
  }
})

PROBE(order_queue_scalar, {  // DeQue orders MTE2 and V, not the scalar unit
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  DataCopy(t, p.in, kTile);
  p.inputs.EnQue(t);
  t = p.inputs.DeQue<float>();
  if (!wrong) p.sync<HardEvent::MTE2_S>();
  t.GetValue(0);
  if (!wrong) p.sync<HardEvent::S_V>();
  p.inputs.FreeTensor(t);
})

PROBE(order_queue_reuse, {  // FreeTensor tells MTE2 of V's reads, not of the scalar unit's
  for (int i = 0; i < 4; ++i) {
    LocalTensor<float> t = p.inputs.AllocTensor<float>();
    DataCopy(t, p.in, kTile);
    p.inputs.EnQue(t);
    t = p.inputs.DeQue<float>();
    p.sync<HardEvent::MTE2_S>();
    t.GetValue(0);
    if (!wrong) p.sync<HardEvent::S_MTE2>();
    p.inputs.FreeTensor(t);
  }
})

PROBE(order_vector, {
  Duplicate(p.a, 1.0f, kTile);
  if (!wrong) PipeBarrier<PIPE_V>();
  Adds(p.b, p.a, 1.0f, kTile);
})

PROBE(order_copies_in, {
  DataCopy(p.a, p.in, kTile);
  if (!wrong) PipeBarrier<PIPE_MTE2>();
  DataCopy(p.a, p.in[kTile], kTile);
})

PROBE(order_copies_out, {
  p.fill();
  DataCopy(p.io, p.a, kTile);
  if (!wrong) PipeBarrier<PIPE_MTE3>();
  DataCopy(p.io[kTile / 2], p.a, kTile);
})

PROBE(order_global, {  // through global memory
  p.fill();
  DataCopy(p.io, p.a, kTile);
  if (!wrong) p.sync<HardEvent::MTE3_MTE2>();
  DataCopy(p.b, p.io, kTile);
})

PROBE(order_barrier_all, {
  DataCopy(p.a, p.in, kTile);
  if (wrong) {
    PipeBarrier<PIPE_MTE2>();
  } else {
    PipeBarrier<PIPE_ALL>();
  }
  p.a.GetValue(0);
})

PROBE(flag_unset, {
  const TEventID id = p.pipe.FetchEventID<HardEvent::V_S>();
  if (!wrong) SetFlag<HardEvent::V_S>(id);
  WaitFlag<HardEvent::V_S>(id);
})

PROBE(flag_left, {
  const TEventID id = p.pipe.FetchEventID<HardEvent::V_S>();
  SetFlag<HardEvent::V_S>(id);
  if (!wrong) WaitFlag<HardEvent::V_S>(id);
})

PROBE(flag_twice, {
  const TEventID id = p.pipe.FetchEventID<HardEvent::V_S>();
  SetFlag<HardEvent::V_S>(id);
  if (!wrong) WaitFlag<HardEvent::V_S>(id);
  SetFlag<HardEvent::V_S>(id);
  WaitFlag<HardEvent::V_S>(id);
})

PROBE(flag_other_event, {
  const TEventID id = p.pipe.FetchEventID<HardEvent::V_S>();
  SetFlag<HardEvent::V_S>(id);
  if (wrong) WaitFlag<HardEvent::V_MTE3>(id);
  WaitFlag<HardEvent::V_S>(id);
})

PROBE(flag_raw_id, {
  const TEventID id = wrong ? EVENT_ID3 : p.pipe.FetchEventID<HardEvent::V_S>();
  SetFlag<HardEvent::V_S>(id);
  WaitFlag<HardEvent::V_S>(id);
})

PROBE(flag_range, {
  const TEventID id = wrong ? 8 : p.pipe.FetchEventID<HardEvent::V_S>();
  SetFlag<HardEvent::V_S>(id);
  WaitFlag<HardEvent::V_S>(id);
})

PROBE(event_not_released, {
  const TEventID id = p.pipe.AllocEventID<HardEvent::V_S>();
  if (!wrong) p.pipe.ReleaseEventID<HardEvent::V_S>(id);
})

PROBE(event_released_twice, {
  const TEventID id = p.pipe.AllocEventID<HardEvent::V_S>();
  p.pipe.ReleaseEventID<HardEvent::V_S>(id);
  if (wrong) p.pipe.ReleaseEventID<HardEvent::V_S>(id);
})

PROBE(event_none_left, {
  TEventID ids[9];
  const int count = wrong ? 9 : 8;
  for (int i = 0; i < count; ++i) ids[i] = p.pipe.AllocEventID<HardEvent::V_S>();
  for (int i = 0; i < count; ++i) p.pipe.ReleaseEventID<HardEvent::V_S>(ids[i]);
})
